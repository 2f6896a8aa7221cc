"""Several lanes in one task: each gets its own rows, all of them, in order; and what breaks off is never an end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.lanes import settings_for

from pipeline.lanes import side_by_side as module
from pipeline.lanes.report import LaneReport
from pipeline.lanes.side_by_side import Feed, by_lane, side_by_side
from pipeline.lanes.task import LaneTask

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = LaneTask(settings_for("localhost:1", "payments"), 1, (1, 2))
DEADLINE_SECONDS = 20.0


def tasks(*partitions: int) -> list[LaneTask]:
    """Return a share of these lanes."""
    return [replace(TASK, partition=partition) for partition in partitions]


def rows(*given: tuple[int, int]) -> pa.RecordBatch:
    """Return rows as they come from Spark, as far as these lanes look at them: partition and offset."""
    return pa.record_batch([pa.array(column) for column in zip(*given, strict=True)], names=["partition", "offset"])


class Noted:
    """A writer that notes what it gets."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.got: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, task: LaneTask, batches: Iterator[Any]) -> LaneReport:
        """Take all rows; a lane is noted only if its rows came to an end."""
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        self.got[task.partition] = found
        return LaneReport(task.partition)


def test_each_lane_gets_its_own_rows_in_order_and_one_without_any_is_written_all_the_same() -> None:
    noted = Noted()
    batches = [rows((2, 5), (2, 6), (0, 1)), rows((0, 2), (0, 3)), rows((3, 9))]
    reports = side_by_side(tasks(2, 1, 0, 3, 4), batches, noted)
    assert [report.partition for report in reports] == [2, 1, 0, 3, 4]
    assert noted.got == {2: [(2, 5), (2, 6)], 1: [], 0: [(0, 1), (0, 2), (0, 3)], 3: [(3, 9)], 4: []}


def test_a_batch_without_rows_belongs_to_nobody() -> None:
    empty = rows((1, 1)).slice(0, 0)
    assert list(by_lane([empty])) == []


@pytest.mark.parametrize("strange", [7, 0])
def test_rows_of_a_lane_that_is_not_here_or_is_over_are_for_the_lane_in_hand_to_refuse(strange: int) -> None:
    noted = Noted()
    side_by_side(tasks(0, 1), [rows((0, 1), (1, 1), (strange, 2))], noted)
    assert noted.got == {0: [(0, 1)], 1: [(1, 1), (strange, 2)]}


def test_an_input_that_breaks_off_is_never_taken_for_the_end_of_a_lane() -> None:
    def broken() -> Iterator[Any]:
        yield rows((0, 1), (1, 1))
        msg = "the socket is gone"
        raise OSError(msg)

    noted = Noted()
    with pytest.raises(OSError, match="the socket is gone"):
        side_by_side(tasks(0, 1, 2), broken(), noted)
    assert noted.got == {0: [(0, 1)]}  # all rows of this one had come


def test_lanes_are_written_while_others_wait() -> None:
    both = threading.Barrier(2, timeout=DEADLINE_SECONDS)

    def run(task: LaneTask, batches: Iterator[Any]) -> LaneReport:
        assert [batch.num_rows for batch in batches] == [1]
        both.wait()  # broken, if the second lane were begun only after the first
        return LaneReport(task.partition)

    assert len(side_by_side(tasks(0, 1), [rows((0, 1), (1, 1))], run)) == 2


def test_a_failure_in_one_lane_is_raised_once_all_others_have_ended() -> None:
    noted = Noted()

    def run(task: LaneTask, batches: Iterator[Any]) -> LaneReport:
        if task.partition == 0:
            msg = "no code expects this"
            raise RuntimeError(msg)
        return noted(task, batches)

    with pytest.raises(RuntimeError, match="no code expects this"):
        side_by_side(tasks(0, 1, 2), [rows((0, 1)), rows((0, 2)), rows((1, 1))], run)
    assert noted.got == {1: [(1, 1)], 2: []}


def test_a_lane_that_holds_much_is_waited_for_before_rows_of_the_next_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HELD_BYTES", 1)
    holding: list[int] = []
    most: list[int] = []

    def run(task: LaneTask, batches: Iterator[Any]) -> LaneReport:
        for _ in batches:
            holding.append(task.partition)
            most.append(len(holding))
        holding.remove(task.partition)
        return LaneReport(task.partition)

    side_by_side(tasks(*range(6)), [rows((lane, 1)) for lane in range(6)], run)
    assert most == [1] * 6


def test_the_next_lanes_are_begun_before_their_rows_come_and_no_more_than_can_run() -> None:
    begun = threading.Semaphore(0)

    def batches() -> Iterator[Any]:
        assert all(begun.acquire(timeout=DEADLINE_SECONDS) for _ in range(module.AT_ONCE))
        assert not begun.acquire(timeout=0.2)
        for lane in range(lanes):
            yield rows((lane, 1))

    def run(task: LaneTask, given: Iterator[Any]) -> LaneReport:
        begun.release()
        assert sum(batch.num_rows for batch in given) == 1
        return LaneReport(task.partition)

    lanes = 3 * module.AT_ONCE
    assert len(side_by_side(tasks(*range(lanes)), batches(), run)) == lanes


def test_a_thread_that_cannot_be_had_fails_the_task_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    noted, submit = Noted(), ThreadPoolExecutor.submit

    def short_of_threads(pool: Any, function: Any, *given: Any) -> Any:
        if given[1].partition == 1:
            msg = "can't start new thread"
            raise RuntimeError(msg)
        return submit(pool, function, *given)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", short_of_threads)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        side_by_side(tasks(0, 1, 2), [rows((0, 1))], noted)
    assert noted.got == {}


def test_lanes_that_were_begun_ahead_do_not_wait_for_an_input_that_broke_off() -> None:
    def broken() -> Iterator[Any]:
        msg = "the socket is gone"
        raise OSError(msg)
        yield

    noted = Noted()
    with pytest.raises(OSError, match="the socket is gone"):
        side_by_side(tasks(0, 1, 2), broken(), noted)
    assert noted.got == {}


def test_what_waits_for_a_writer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows((0, 1))
    monkeypatch.setattr(module, "WAITING_BYTES", 2 * batch.get_total_buffer_size())
    feed, put = Feed(), threading.Semaphore(0)

    def fill() -> None:
        for _ in range(4):
            feed.put(batch)
            put.release()
        feed.close()

    filler = threading.Thread(target=fill)
    filler.start()
    assert all(put.acquire(timeout=DEADLINE_SECONDS) for _ in range(2))
    assert not put.acquire(timeout=0.2)  # the third waits until one is taken
    taken = iter(feed)
    next(taken)
    assert put.acquire(timeout=DEADLINE_SECONDS)
    assert len(list(taken)) == 3
    filler.join(DEADLINE_SECONDS)


def test_a_batch_larger_than_the_bound_passes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 1)
    feed = Feed()
    feed.put(rows((0, 1)))
    feed.close()
    assert len(list(feed)) == 1


def test_a_writer_that_has_ended_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 1)
    noted = Noted()

    def run(task: LaneTask, batches: Iterator[Any]) -> LaneReport:
        return LaneReport(task.partition) if task.partition == 0 else noted(task, batches)

    side_by_side(tasks(0, 1), [*(rows((0, offset)) for offset in range(5)), rows((1, 1))], run)
    assert noted.got == {1: [(1, 1)]}
