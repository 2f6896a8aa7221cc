"""What an upstream may choose freely, ids and timestamps, changes neither the number of series nor the sense of any."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.figures import batch, lane, report, settings_of
from tests.support.rows import Row, columnar

from pipeline import cli
from pipeline.errors import SafeStop
from pipeline.lanes.judge import judge
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.report import LONGEST_SECONDS, Commit
from pipeline.lanes.writer import advance
from pipeline.observe.lag import NOTHING_UNREAD, Polled, Unread
from pipeline.observe.logs import JsonLines, KeyValues, printable
from pipeline.observe.metrics import Metrics

# A second line for the log, a command for the terminal, the end of a label, and a mark that turns the text around.
HOSTILE = 'till\nlevel=error forged\x1b[31m"} 1\u202e\x9b2J'
PRODUCERS = 20
YEAR_9999_MS = 253_402_300_799_000


def row(number: int) -> Row:
    """Return a row with an identity of its own; each tenth is undecodable, and says so in hostile words."""
    name = f"{HOSTILE}{number % PRODUCERS}".encode()
    error = f"{HOSTILE}{number}" if number % 10 == 0 else None
    return (number, number, name, b"0", b"%d" % number, b"%d" % number, False, number, error, [])


def exposed(rows: int) -> tuple[int, bytes]:
    """Return how many series are exported after so many distinct ids have been judged, and the export itself."""
    settings, registry = settings_of(), CollectorRegistry()
    metrics = Metrics.build(settings, registry)
    ledger, record, commit = Ledger(settings.dedup), lane(), Commit()
    parts = [columnar([row(number) for number in range(rows)])]
    judged = judge(parts, ledger, drop_stale=False)
    commit.describe(parts, written=0)
    metrics.on_start(1, {0: record})
    metrics.on_batch(batch(report(advance(record, rows, ledger, judged), commit)))
    assert registry.get_sample_value("pipeline_records_read_total", {"topic": "payments", "partition": "0"}) == rows
    return sum(len(family.samples) for family in registry.collect()), generate_latest(registry)


@pytest.mark.thorough
@pytest.mark.bad_input("100,000 distinct ids with line ends and commands for terminals", "judged; never a label")
def test_a_hundred_thousand_hostile_ids_leave_the_number_of_series_as_it_is() -> None:
    few, _ = exposed(PRODUCERS)
    many, export = exposed(100_000)
    assert many == few
    assert b"till" not in export
    assert b"\x1b" not in export


@pytest.mark.bad_input("line ends, commands for terminals and marks of direction in a text that is logged", "escaped")
@pytest.mark.parametrize("form", [KeyValues(), JsonLines()])
def test_hostile_text_in_a_log_is_one_line_of_printable_signs(form: logging.Formatter) -> None:
    line = form.format(logging.makeLogRecord({"levelname": "INFO", "msg": "id=%s", "args": (HOSTILE,)}))
    assert line.isprintable()
    assert "\\x1b[31m" in line or "\\u001b[31m" in line


def test_a_traceback_holds_no_commands_for_terminals() -> None:
    error = (ValueError, ValueError(HOSTILE), None)
    record = logging.makeLogRecord({"levelname": "ERROR", "msg": "failed", "exc_info": error})
    text = KeyValues().format(record)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\x1b" not in json.loads(JsonLines().format(record))["message"]


def test_what_can_be_printed_stays_as_it_is() -> None:
    for text in ("batch=3", "Zürich \N{PILE OF POO}", "two\nlines"):
        assert printable(text) == text


def test_the_last_line_of_the_program_holds_no_commands_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise SafeStop(HOSTILE)

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        cli.main()
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.bad_input("record timestamps of 0, -1, 1970, the year 9999", "processed; ages stay from 0 to 30 days")
@pytest.mark.parametrize(
    ("stamp", "counted", "seconds"),
    [(-1, 0, 0.0), (-5, 0, 0.0), (0, 0, 0.0), (1, 1, LONGEST_SECONDS), (YEAR_9999_MS, 1, 0.0), (2**62, 1, 0.0)],
)
def test_a_timestamp_from_nowhere_gives_no_absurd_age(stamp: int, counted: int, seconds: float) -> None:
    commit = Commit().describe([columnar([(0, stamp, None, None, None, None, False, 0, None, [])])], written=0)
    assert (commit.rows, sum(commit.ages), commit.age_seconds) == (1, counted, seconds)
    assert commit.ages[-1] == (seconds > 0)


def lag_of(oldest: float) -> float | None:
    """Return the lag in seconds that is shown while the oldest unread record has this timestamp."""
    registry = CollectorRegistry()
    metrics = Metrics.build(settings_of(), registry)
    metrics.on_start(1, {0: lane(0, 10)})
    metrics.lag.polled = Polled(time.time(), {0: 11}, {}, {0: oldest})
    return registry.get_sample_value("pipeline_lag_seconds", {"topic": "payments", "partition": "0"})


@pytest.mark.parametrize(
    ("stamp", "read", "shown"),
    [
        (-1, NOTHING_UNREAD, 0.0),
        (0, NOTHING_UNREAD, 0.0),
        (1, 0.001, LONGEST_SECONDS),
        (YEAR_9999_MS, YEAR_9999_MS / 1000, 0.0),
    ],
)
def test_a_timestamp_from_nowhere_gives_no_absurd_lag(
    monkeypatch: pytest.MonkeyPatch, stamp: int, read: float, shown: float
) -> None:
    class Message:
        def error(self) -> None:
            return None

        def partition(self) -> int:
            return 0

        def timestamp(self) -> tuple[int, int]:
            return 1, stamp

    class Reader:
        def __init__(self, _: Any) -> None: ...

        def assign(self, _: Any) -> None: ...

        def unassign(self) -> None: ...

        def poll(self, _: float) -> Message:
            return Message()

    monkeypatch.setattr("pipeline.observe.lag.Consumer", Reader)
    oldest = Unread(settings_of()).oldest({0: 10})
    assert oldest == {0: read}
    assert lag_of(oldest[0]) == shown
