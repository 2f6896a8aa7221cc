"""The command line: it teaches, a mistake is one line, and every way to end has its own exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from pipeline import __version__, cli, errors
from pipeline.lanes import topics
from pipeline.observe.doctor import site
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Nothing listens on this port.
NOWHERE = "127.0.0.1:1"
COMMANDS = ("run", "provision", "audit", "doctor", "state", "watch", "demo", "compare", "replay")
# A wide terminal, so that no sentence is broken.
WIDE = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
SECONDS = 60.0


class Ended(NamedTuple):
    """How a call ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the program in this process, as its entry point does."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["pipeline", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return settings for a cluster that is not there; its deadlines are short."""
    monkeypatch.setattr(topics, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(site, "PROBE_SECONDS", 0.5)
    path = tmp_path / "pipeline.toml"
    path.write_text(
        f"""
        app.id = "shop"
        source.bootstrap = "{NOWHERE}"
        source.topic = "payments"
        output.topics = ["receipts"]
        output.dead_letter_topic = "dead"
        """,
        encoding="utf-8",
    )
    return path


def test_help_lists_the_commands_and_the_way_of_a_first_run() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"], env=WIDE)
    assert shown.exit_code == 0
    commands = [command.callback for command in cli.app.registered_commands if command.callback and not command.hidden]
    assert {command.__name__ for command in commands} >= set(COMMANDS)
    for command in commands:
        assert f" {command.__name__} " in shown.output
        assert (command.__doc__ or "nothing is said")[:40] in shown.output
    assert "A first run: `pipeline doctor`" in shown.output


def test_help_explains_every_exit_code_that_an_error_has() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"], env=WIDE).output
    explained = {line.split()[0] for line in shown.partition("Exit codes:")[2].splitlines() if line.strip()}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.PipelineError)}
    assert explained == {str(code) for code in codes}
    assert len(codes) == len(kinds)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_teaches_where_its_settings_come_from(command: str) -> None:
    shown = CliRunner().invoke(cli.app, [command, "--help"], env=WIDE)
    assert shown.exit_code == 0
    for word in ("--settings", "PIPELINE_SETTINGS", "pipeline.toml", "--json"):
        assert word in shown.output


def test_the_version_is_printed(call: Callable[..., Ended]) -> None:
    assert call("version") == (0, f"{__version__}\n", "")


def test_a_wrong_option_is_usage() -> None:
    assert CliRunner().invoke(cli.app, ["run", "--nonsense"]).exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_settings_file_is_one_line_and_exit_code_2(
    call: Callable[..., Ended], tmp_path: Path, command: str
) -> None:
    missing = tmp_path / "nowhere.toml"
    line = f"error: {missing}: no such settings file; give one with --settings\n"
    assert call(command, "--settings", missing) == (2, "", line)


def test_the_program_itself_ends_so_too_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text("app = 3", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", "-s", str(path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.stderr == f"error: {path}: app: must be a section with keys of its own: [app]\n"
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.PipelineError, 1),
        (errors.BadSettings, 2),
        (errors.SafeStop, 3),
        (errors.Replaced, 4),
        (errors.NotExact, 5),
        (errors.Unreachable, 6),
        (errors.Stopped, 0),
    ],
)
def test_every_error_is_one_line_and_its_own_exit_code(
    call: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, kind: type[errors.PipelineError], code: int
) -> None:
    def broken(_: Path) -> None:
        msg = "what happened; what to do"
        raise kind(msg)

    monkeypatch.setattr(cli, "load", broken)
    assert call("doctor") == (code, "", "error: what happened; what to do\n")


def test_a_defect_is_not_taken_for_a_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "load", broken)
    monkeypatch.setattr(sys, "argv", ["pipeline", "doctor"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize("command", ["run", "provision", "audit"])
def test_an_absent_cluster_is_one_line_with_its_address_and_exit_code_6(
    call: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, away: Path, command: str
) -> None:
    def start(*_: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("pipeline.flow.job.session", start)
    monkeypatch.setattr("pipeline.flow.expected.session", start)
    ended = call(command, "-s", away)
    assert (ended.code, ended.out) == (6, "")
    assert ended.err.count("\n") == 1
    assert f"(cluster {NOWHERE}); check the address" in ended.err


def test_doctor_tells_of_an_absent_cluster_and_of_all_that_needs_none(call: Callable[..., Ended], away: Path) -> None:
    ended = call("doctor", "-s", away, "--json")
    assert ended.code == 1
    assert ended.err == "error: the surroundings are not fit; see the lines marked fail\n"
    findings = {finding["what"]: finding for finding in json.loads(ended.out)}
    assert findings["source cluster"]["state"] == "fail"
    assert NOWHERE in findings["source cluster"]["detail"]
    assert "check the address" in findings["source cluster"]["remedy"]
    assert findings["Python"]["state"] == "ok"
    assert findings["not checked"]["state"] == "warn"
    for skipped in ("source topic", "lanes", "replication", "open transactions"):
        assert skipped in findings["not checked"]["detail"]


def test_doctor_for_people_shows_the_remedy_below_what_is_wrong(call: Callable[..., Ended], away: Path) -> None:
    lines = [line.strip() for line in call("doctor", "-s", away).out.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("fail  source cluster"))
    below = " ".join(lines[place : place + 4])
    assert "-> check the address and that the brokers run" in below
    assert lines[-1].endswith(" fail")
    assert not any("->" in line for line in lines[: lines.index(next(x for x in lines if x.startswith("fail")))])


def test_settings_come_from_the_file_that_the_environment_names(
    call: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, away: Path
) -> None:
    seen: list[Path] = []

    def noted(path: Path) -> object:
        seen.append(path)
        return load(path, {})

    monkeypatch.setattr(cli, "load", noted)
    monkeypatch.setenv("PIPELINE_SETTINGS", str(away))
    assert call("provision").code == 6
    assert seen == [away]
