"""Report: what a task tells its driver survives the way, and every reason to stop arrives as itself."""

from __future__ import annotations

import pytest
from tests.support.rows import Row, columnar

from pipeline.errors import PipelineError, Replaced, SafeStop, Stopped
from pipeline.flow.report_rows import report_row, reports_in
from pipeline.kafka import Abortable, Fatal, Fenced, TransactionFailed
from pipeline.lanes.report import Commit, LaneReport
from pipeline.lanes.transaction import Moved


def row(offset: int, timestamp: int) -> Row:
    """Return a row of which only place and time matter."""
    return (offset, timestamp, None, None, None, None, False, 0, None, [])


def sent(*reports: LaneReport) -> list[LaneReport]:
    """Return what the driver hears of two tasks: one with these reports, one without any."""
    packed = [row["reports"] for given in (reports, ()) for row in report_row(given).to_pylist()]
    assert len(packed) == 2  # a task gives one row, however many lanes it has
    return reports_in(packed)


def test_a_report_comes_to_the_driver_as_it_left_the_task() -> None:
    commit = Commit(rows=2, written=3, oldest_ms=7, newest_ms=9, committed_ms=11, seconds={"fence": 0.5})
    report = LaneReport(4, record=b"\x00\xff", end=12, skipped=5, commits=[commit, Commit()])
    report.note_failure(Moved("m"))
    report.note_stop(SafeStop("why"))
    other = LaneReport(5, record=b"", outcomes={"committed": 1})
    assert sent(report, other) == [report, other]


def test_the_oldest_and_the_newest_row_of_a_commit_are_told_by_time_not_by_place() -> None:
    commit = Commit()
    commit.describe([columnar([row(0, 50), row(1, 10)]), columnar([row(2, 30)])], written=4)
    assert (commit.rows, commit.written, commit.oldest_ms, commit.newest_ms) == (3, 4, 10, 50)


def test_a_commit_without_rows_has_no_ages() -> None:
    commit = Commit()
    commit.describe([], written=0)
    assert (commit.rows, commit.oldest_ms, commit.newest_ms) == (0, None, None)


def test_failures_are_counted_by_kind() -> None:
    report = LaneReport(0)
    for error in (Moved("a"), Fenced("b"), Fenced("c"), Fatal("d"), Abortable("e")):
        report.note_failure(error)
    assert report.failures == {"moved": 1, "fenced": 2, "fatal": 1, "abortable": 1}


@pytest.mark.parametrize("kind", [Replaced, SafeStop, Stopped, TransactionFailed])
def test_a_reason_to_stop_is_raised_again_on_the_driver(kind: type[PipelineError]) -> None:
    report = LaneReport(0)
    report.note_stop(kind("this line"))
    with pytest.raises(kind, match=r"^this line$"):
        sent(report)[0].raise_stop()


@pytest.mark.parametrize("kind", [Abortable, Fatal, Fenced, Moved])
def test_any_failed_transaction_reaches_the_driver_as_one(kind: type[TransactionFailed]) -> None:
    report = LaneReport(0)
    report.note_stop(kind("this line"))
    with pytest.raises(TransactionFailed, match=r"^this line$"):
        sent(report)[0].raise_stop()


def test_a_report_without_a_reason_to_stop_raises_nothing() -> None:
    sent(LaneReport(0))[0].raise_stop()
