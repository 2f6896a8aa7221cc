"""`pipeline compare` shows the deliveries side by side; `pipeline replay` processes a stretch of the log once more.

Guarantee: a comparison that does not show what each delivery promises, and a replay that was stopped before its end,
say so; what a replay is to do is settled before anything is started.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pipeline.errors import BadSettings, NotExact
from pipeline.settings import load

if TYPE_CHECKING:
    from types import FrameType

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

    if load(settings_file).shuffled:  # a mistake is told before a broker is started
        msg = "compare is for the lanes path: with windows or window dedup there is only one delivery, exactly-once"
        raise BadSettings(msg)
    results = Compare(settings_file, payments, seed, Console(stderr=as_json)).run_all()
    if as_json:
        print(json.dumps({semantics: result.as_dict() for semantics, result in results.items()}))
    if not as_meant(results):
        msg = "a delivery did not show what it promises; see the tables"
        raise NotExact(msg)


def replay(  # noqa: PLR0913  the stretch, and where it goes
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    start: Annotated[
        str, typer.Option("--from", help="earliest, a time with its zone, an offset, or offsets:{...} by partition.")
    ] = "earliest",
    end: Annotated[str, typer.Option("--to", help="As --from; the record there is not read.")] = "latest",
    into: Annotated[
        list[str] | None, typer.Option("--into", help="The topic for all outputs, or <old>=<new> for each of them.")
    ] = None,
    app: Annotated[str, typer.Option("--app", help="Its app id; by default named after --into.")] = "",
    as_json: AsJson = False,
) -> None:
    """Process a stretch of the log once more, into other topics, under another app id. Give it again to go on."""
    from pipeline.flow.stretch import stretch_of  # noqa: PLC0415
    from pipeline.lanes.provision import provision  # noqa: PLC0415
    from pipeline.observe import logs  # noqa: PLC0415
    from pipeline.observe.setup import observing  # noqa: PLC0415

    live = load(settings_file)
    if not into:
        msg = "say into which topic: --into <topic>, or --into <old>=<new> for each output"
        raise typer.BadParameter(msg)
    stretch = stretch_of(live, start, end, into, app)
    provision(stretch.settings, lambda _: None)
    logs.set_up("json" if as_json else live.log.format)
    with observing(stretch.settings) as observer:
        from pipeline.flow.replay import Replay  # noqa: PLC0415  Spark takes a second to import

        job = Replay(stretch, observer)

        def stop(number: int, _: FrameType | None) -> None:
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            job.end()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        left = job.run()
        observer.say(
            f"stopped on request, {left} offsets left: give the command again to go on" if left else "replayed"
        )
