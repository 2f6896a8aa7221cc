"""`pipeline audit`: whether the output is what the source demands.

Guarantee: exit code 0 only if the delivery that is set was kept, or if all that was not was accepted by an option.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from pipeline.cli_choice import DEFAULT_SETTINGS, AsJson, SettingsFile
from pipeline.errors import BadSettings, NotExact
from pipeline.settings import load


def audit(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    accept_repeats: Annotated[
        bool,
        typer.Option(
            "--accept-repeats",
            help="With window dedup: ids that were written again within the horizon are shown, but no fault.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read all topics, compute by brute force what the output must be, and compare. Run it while the job is stopped."""
    from pipeline.acls import check, of_audit  # noqa: PLC0415
    from pipeline.lanes.topics import Topics  # noqa: PLC0415
    from pipeline.observe.show import run_audit  # noqa: PLC0415

    settings = load(settings_file)
    if accept_repeats and settings.dedup.strategy != "window":
        msg = "--accept-repeats is for dedup.strategy = 'window': only there has an id a horizon; leave it out"
        raise BadSettings(msg)
    check(settings, of_audit)
    # The audit reads with patience; what is not there at all is told sooner.
    Topics(settings.source.bootstrap).one(settings.source.topic, "source topic")
    Topics(settings.output_bootstrap).one(settings.lane_topic, "lane topic")
    result = run_audit(settings, Console(stderr=as_json, quiet=as_json), accept_repeats=accept_repeats)
    if as_json:
        print(json.dumps(result.as_dict()))
    if not result.kept:
        msg = "the output is not exactly what the source demands; see the table"
        raise NotExact(msg)
