"""The lanes of a task, written together: each gets its own rows, all of them, in order, and is moved past no others."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lanes import row, settings_for
from tests.support.rows import arrow

from pipeline.errors import SafeStop
from pipeline.flow import together as module
from pipeline.flow.together import bounded, ids_of, lane_chunks, run_together, whole
from pipeline.lanes import share
from pipeline.lanes.share import ShareWriter
from pipeline.lanes.task import LaneTask
from pipeline.lanes.together import ShareLane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from pipeline.flow.together import Cut
    from pipeline.lanes.rows import Chunk

SETTINGS = settings_for("localhost:1", "payments", transaction={"chunk_rows": 10})
TASK = LaneTask(SETTINGS, 1, (1, 2), first=0, until=100)


def tasks(*partitions: int) -> list[LaneTask]:
    """Return a share of these lanes, of a hundred offsets each."""
    return [replace(TASK, partition=partition) for partition in partitions]


def rows(partition: int, *offsets: int) -> pa.RecordBatch:
    """Return rows of a lane as they come from Spark."""
    return arrow([row(offset, []) for offset in offsets], partition)


def found(given: list[LaneTask], batches: Any, cut: Cut = whole) -> list[tuple[int, int, int, list[int]]]:
    """Return the chunks of a share: lane, range, offsets of its rows."""
    return [(lane, *described(chunk)) for lane, chunk in lane_chunks(given, batches, cut)]


def described(chunk: Chunk) -> tuple[int, int, list[int]]:
    """Return a chunk's range, and the offsets of its rows."""
    return chunk.first, chunk.until, [int(offset) for part in chunk.parts for offset in part.offsets]


@pytest.mark.parametrize("cut", [whole, bounded])
def test_each_lane_has_its_own_rows_in_order_and_one_without_any_has_its_range(cut: Cut) -> None:
    batches = [rows(2, 5, 6), rows(0, 1), rows(0, 2, 3), rows(3, 9)]
    assert found(tasks(2, 1, 0, 3, 4), batches, cut) == [
        (2, 0, 100, [5, 6]),
        (1, 0, 100, []),
        (0, 0, 100, [1, 2, 3]),
        (3, 0, 100, [9]),
        (4, 0, 100, []),
    ]


@pytest.mark.parametrize(("strange", "before"), [(7, [(0, 0, 100, [1])]), (0, [(0, 0, 100, [1]), (1, 0, 100, [1])])])
def test_rows_of_a_lane_that_is_not_here_or_is_over_stop_the_task_before_other_lanes_are_moved(
    strange: int, before: list[tuple[int, int, int, list[int]]]
) -> None:
    batches = [rows(0, 1), *([] if strange else [rows(1, 1)]), rows(strange, 2)]
    given = lane_chunks(tasks(0, 1, 2), batches, bounded)
    seen: list[tuple[int, int, int, list[int]]] = []
    with pytest.raises(SafeStop, match=f"rows of partition {strange} where others were expected"):
        seen.extend((lane, *described(chunk)) for lane, chunk in iter(lambda: next(given), None))
    assert seen == before


@pytest.mark.parametrize("cut", [whole, bounded])
def test_an_input_that_breaks_off_is_never_taken_for_the_end_of_a_lane(cut: Cut) -> None:
    def broken() -> Iterator[Any]:
        yield rows(0, 1)
        yield rows(1, 1)
        msg = "the socket is gone"
        raise OSError(msg)

    seen: list[int] = []
    given = lane_chunks(tasks(0, 1, 2), broken(), cut)
    with pytest.raises(OSError, match="the socket is gone"):
        seen.extend(lane for lane, _ in iter(lambda: next(given), None))
    assert seen == [0]  # all rows of this one had come


class Noted(ShareWriter):
    """A writer that notes what each of its transactions holds."""

    made: list[Noted]

    def __init__(self, given: list[LaneTask], name: str) -> None:
        """Nothing yet."""
        super().__init__(given, name)
        self.name = name
        self.written: list[dict[int, tuple[int, int, int]]] = []
        self.made.append(self)

    def begin(self) -> None:
        """Connect to nobody."""

    def write(self) -> None:
        """Note the ranges, and how many rows they have."""
        self.written.append({lane: (chunk.first, chunk.until, len(chunk)) for lane, chunk in self._in_hand.items()})
        self._in_hand = {}


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    """Return the writers that are made from now on."""
    made: list[Noted] = []
    monkeypatch.setattr(Noted, "made", made, raising=False)
    monkeypatch.setattr(module, "ShareWriter", Noted)
    return made


def test_a_small_share_is_one_transaction_under_the_id_of_its_lowest_lane(writers: list[Noted]) -> None:
    run_together(tasks(6, 2, 4), iter([rows(6, *range(3)), rows(4, *range(4))]))
    assert [(writer.name, writer.written) for writer in writers] == [
        (SETTINGS.transactional_id(2), [{6: (0, 100, 3), 2: (0, 100, 0), 4: (0, 100, 4)}])
    ]


def test_a_share_commits_before_it_holds_more_rows_than_one_lane_may(writers: list[Noted]) -> None:
    batches = [rows(0, *range(6)), rows(1, *range(6)), rows(2, *range(25)), rows(3, 1)]
    run_together(tasks(0, 1, 2, 3), iter(batches))
    assert writers[0].written == [
        {0: (0, 100, 6)},
        {1: (0, 100, 6)},
        {2: (0, 10, 10)},
        {2: (10, 20, 10)},
        {2: (20, 100, 5), 3: (0, 100, 1)},
    ]


@pytest.mark.parametrize("much", ["bytes", "seconds", "letters"])
def test_a_share_commits_what_it_holds_if_that_is_large_or_has_waited_for_long(
    writers: list[Noted], monkeypatch: pytest.MonkeyPatch, much: str
) -> None:
    if much == "seconds":
        monkeypatch.setattr(share, "time", SimpleNamespace(monotonic=count(0, 3_600).__next__))
    elif much == "letters":
        monkeypatch.setattr(share, "LETTER_LANES", 1)
        monkeypatch.setattr(ShareLane, "letters", 1)
    else:
        monkeypatch.setattr(share, "HELD_BYTES", -1)
    run_together(tasks(0, 1, 2), iter([rows(0, 1), rows(2, 1)]))
    assert [sorted(written) for written in writers[0].written] == [[0], [1], [2]]


def test_a_reason_to_stop_is_told_by_the_first_lane_and_the_input_is_read_to_its_end(
    writers: list[Noted], tmp_path: Path
) -> None:
    told = [replace(task, stop_file=str(tmp_path / "stop")) for task in tasks(0, 1)]
    batches = iter([rows(5, 1), rows(0, 1), rows(1, 1)])
    reports = run_together(told, batches)
    assert [report.stop for report in reports] == ["safe-stop", ""]
    assert writers[0].written == []
    assert not list(batches)


@pytest.mark.parametrize(
    ("delivery", "ids"),
    [
        ({}, "2 2 0"),
        ({"atomicity": "batch"}, "batch batch batch"),
        ({"semantics": "at-least-once"}, "5 2 0"),
        ({"semantics": "at-most-once"}, "5 2 0"),
    ],
)
def test_the_lanes_of_a_task_have_one_id_if_they_have_one_transaction(delivery: dict[str, str], ids: str) -> None:
    settings = settings_for("localhost:1", "payments", delivery=delivery)
    found = ids_of([iter((5, 2)), [0]], settings)
    assert found == {lane: settings.transactional_ids + end for lane, end in zip((5, 2, 0), ids.split(), strict=True)}
