"""The command line: `python -m pipeline`, or `pipeline`.

Guarantee: a user's mistake is one line without a traceback, and every way to end has its own exit code.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pipeline import __version__, cli_choice, cli_letters, cli_pod, cli_settings
from pipeline.errors import NotExact, PipelineError
from pipeline.observe.logs import printable
from pipeline.settings import load

if TYPE_CHECKING:
    from types import FrameType

EXIT_CODES = """
Exit codes:
0 done, or stopped on request
1 failed; safe to start again
2 bad settings or usage; nothing was started
3 stopped to protect the data; the line says what to do
4 replaced by a newer run; do not start again
5 the output is not exact
6 a Kafka cluster cannot be reached; safe to try again
7 the schema registry does not answer; safe to try again
8 a Kafka cluster does not let this user in, or denies an operation; the line says which
"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Kafka to Spark to Kafka, exactly once.\n\n"
    "A first run: `pipeline doctor` checks the surroundings, `pipeline provision` creates topics and lanes, "
    "`pipeline run` processes, `pipeline audit` proves the result.",
    epilog=EXIT_CODES,
)

app.add_typer(cli_letters.app, name="dead-letters")
app.command()(cli_choice.compare)
app.command()(cli_choice.replay)
app.command()(cli_settings.settings)
cli_pod.add(app, lambda arguments: app(arguments, standalone_mode=False))

SettingsFile = Annotated[
    Path, typer.Option("--settings", "-s", envvar="PIPELINE_SETTINGS", help="The settings file.", show_default=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]
DEFAULT_SETTINGS = Path("pipeline.toml")


@app.command()
def run(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Process what is there now, then end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Process the source topic until stopped (SIGTERM, Ctrl-C), replaced by a newer run, or caught up."""
    from pipeline.flow.preflight import check_topics  # noqa: PLC0415
    from pipeline.observe import logs  # noqa: PLC0415
    from pipeline.observe.setup import observing  # noqa: PLC0415

    settings = load(settings_file)
    with observing(settings) as observer:
        check_topics(settings)  # again in the job; here it tells of an absent cluster or topic before Spark is started
        logs.set_up("json" if as_json else settings.log.format)

        from pipeline.flow.job import Job  # noqa: PLC0415  Spark takes a second to import; only this command needs it

        job = Job(settings, observer, until_caught_up=until_caught_up)

        def stop(number: int, _: FrameType | None) -> None:
            logging.getLogger("pipeline").info(
                "signal=%s stopping after the chunks in hand", signal.Signals(number).name
            )
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            job.stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        job.run()


@app.command()
def provision(  # noqa: PLR0913  the options of a command
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Move lanes past source records that retention deleted unread; count them as lost."
        ),
    ] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Only print the ACLs that are needed, as commands of kafka-acls.")
    ] = False,
    principal: Annotated[
        str, typer.Option("--principal", help="With --acls: to whom, if not from the settings: User:shop.")
    ] = "",
    command_config: Annotated[
        str, typer.Option("--command-config", help="With --acls: an administrator's own client properties.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Create missing topics, give each new lane its first record, and refuse wrong policies. Safe to repeat."""
    from pipeline.lanes import provision as lanes  # noqa: PLC0415

    settings = load(settings_file)
    if acls:
        from pipeline.acls import printed  # noqa: PLC0415

        print("\n".join(printed(settings, principal, command_config)))
        return
    lines: list[str] = []
    say = lines.append if as_json else print
    if settings.codec.output_framing == "confluent":
        from pipeline.flow.codec import codec_of  # noqa: PLC0415  it needs Spark's types

        codec_of(settings).register(say)
    lanes.provision(settings, say)
    if accept_loss:
        lanes.accept_loss(settings, say)
    if as_json:
        print(json.dumps({"done": lines}))


@app.command()
def audit(settings_file: SettingsFile = DEFAULT_SETTINGS, *, as_json: AsJson = False) -> None:
    """Read all topics, compute by brute force what the output must be, and compare. Run it while the job is stopped."""
    from pipeline.acls import check, of_audit  # noqa: PLC0415
    from pipeline.lanes.topics import Topics  # noqa: PLC0415
    from pipeline.observe.show import run_audit  # noqa: PLC0415

    settings = load(settings_file)
    check(settings, of_audit)
    # The audit reads with patience; what is not there at all is told sooner.
    Topics(settings.source.bootstrap).one(settings.source.topic, "source topic")
    Topics(settings.output_bootstrap).one(settings.lane_topic, "lane topic")
    result = run_audit(settings, Console(stderr=as_json, quiet=as_json))
    if as_json:
        print(json.dumps(result.as_dict()))
    if not result.kept:
        msg = "the output is not exactly what the source demands; see the table"
        raise NotExact(msg)


@app.command()
def doctor(settings_file: SettingsFile = DEFAULT_SETTINGS, *, as_json: AsJson = False) -> None:
    """Check machine, clusters, topics, limits, clocks and lanes: each line ok, warn or fail, with its remedy."""
    from pipeline.observe.doctor import examine, show  # noqa: PLC0415

    findings = examine(load(settings_file))
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings]))
    else:
        show(findings, Console())
    if any(finding.state == "fail" for finding in findings):
        msg = "the surroundings are not fit; see the lines marked fail"
        raise PipelineError(msg)


@app.command()
def state(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    most: Annotated[int, typer.Option("--most", min=1, help="Show no more producers than so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what the job remembers: the ledger by producer, windows and ids in Spark's state, and what bounds them."""
    from pipeline.observe.state import read_state, show  # noqa: PLC0415

    found = read_state(load(settings_file))
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        show(found, Console(), most)


@app.command()
def watch(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    url: Annotated[
        str, typer.Option("--url", help="Of the job's endpoint, if not from the settings: http://host:9108.")
    ] = "",
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, then end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a running job live: lanes, rates, lag, dedup hits, dead letters, commit latency. It asks the job alone."""
    from pipeline.observe.watch import endpoint_of, look_once, watch_live  # noqa: PLC0415

    where = url or endpoint_of(load(settings_file))
    if as_json:
        print(json.dumps(look_once(where).as_dict()))
    elif once:
        Console().print(look_once(where).shown())
    else:
        watch_live(where, every, Console())


@app.command()
def demo(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    payments: Annotated[int, typer.Option(min=1_000, help="How many payments are sent.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Data and duplicates follow from it.")] = 1,
    record: Annotated[
        Path | None, typer.Option("--record", help="Keep the metrics of every second, for pipeline.local.picture.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """On an embedded Kafka: send payments with duplicates, kill the job in mid transaction, recover, audit."""
    from pipeline.local.demo import Demo  # noqa: PLC0415

    load(settings_file)  # a mistake in it is told before a broker is started
    result = Demo(settings_file, payments, seed, Console(stderr=as_json), record).run()
    if as_json:
        print(json.dumps(result.as_dict()))
    if not (result.exact and result.caught_up):
        msg = "the demo's output is not exact"
        raise NotExact(msg)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Entry point."""
    try:
        app()
    except PipelineError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
