"""`pipeline compare`: what may be chosen, shown for what it is.

Guarantee: a comparison that does not show what each delivery promises ends with an exit code of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.errors import NotExact
from pipeline.settings import load

SettingsFile = Annotated[
    Path, typer.Option("--settings", "-s", envvar="PIPELINE_SETTINGS", help="The settings file.", show_default=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]
DEFAULT_SETTINGS = Path("pipeline.toml")


def compare(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    payments: Annotated[int, typer.Option(min=1_000, help="How many payments are sent.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Data and duplicates follow from it.")] = 1,
    as_json: AsJson = False,
) -> None:
    """On an embedded Kafka: the three deliveries side by side, each job killed at the same places, and audited."""
    from pipeline.local.compare import Compare, as_meant  # noqa: PLC0415

    load(settings_file)  # a mistake in it is told before a broker is started
    results = Compare(settings_file, payments, seed, Console(stderr=as_json)).run_all()
    if as_json:
        print(json.dumps({semantics: result.as_dict() for semantics, result in results.items()}))
    if not as_meant(results):
        msg = "a delivery did not show what it promises; see the tables"
        raise NotExact(msg)
