"""Few rows cross at a time while nothing is known of their size, or they are large; many where they are small."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pipeline.flow.batch import Lanes
from pipeline.flow.crossing import (
    CODE,
    FEW_ROWS,
    INTERPRETED,
    MANY_ROWS,
    PAYS_OFF,
    ROWS,
    WRITTEN,
    Weighed,
    rows_in_a_piece,
    told_for,
)
from pipeline.flow.ranges import Range
from pipeline.flow.report_rows import report_row, reports_in
from pipeline.lanes.report import LaneReport
from pipeline.lanes.task import LaneTask
from pipeline.settings import build

MEGABYTE = 1024 * 1024
SETTINGS = build(
    {
        "app": {"id": "app"},
        "source": {"bootstrap": "here:1", "topic": "in"},
        "output": {"topics": ["out"], "dead_letter_topic": "dead"},
    }
)


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(0, FEW_ROWS), (1, MANY_ROWS), (40_000, MANY_ROWS), (80_000, 209), (MEGABYTE, FEW_ROWS), (9 * MEGABYTE, FEW_ROWS)],
)
def test_as_many_rows_as_a_piece_may_take_by_what_is_known_of_them(row_bytes: int, rows: int) -> None:
    assert rows_in_a_piece(row_bytes) == rows


@pytest.mark.parametrize(
    ("offsets", "code"),
    [([0], INTERPRETED), ([PAYS_OFF - 1], INTERPRETED), ([PAYS_OFF], WRITTEN), ([PAYS_OFF * 2, 0, 0], INTERPRETED)],
)
def test_a_program_for_each_partition_is_written_only_where_it_pays_off(offsets: list[int], code: str) -> None:
    told = told_for([Range(lane, 0, until) for lane, until in enumerate(offsets)], 200)
    assert told == {ROWS: str(MANY_ROWS), CODE: code}


def piece(*sizes: int) -> pa.RecordBatch:
    """Return rows of so many bytes each."""
    return pa.record_batch([pa.array([b"x" * size for size in sizes], pa.binary())], names=["value"])


def test_what_a_row_takes_is_that_of_the_heaviest_piece_and_rows_pass_as_they_are() -> None:
    pieces = [piece(10, 10), piece(), piece(MEGABYTE, MEGABYTE, MEGABYTE), piece(20)]
    weighed = Weighed(pieces)
    assert [batch.num_rows for batch in weighed] == [2, 0, 3, 1]
    assert MEGABYTE <= weighed.row_bytes < MEGABYTE * 1.01


def test_large_rows_are_remembered_for_some_batches() -> None:
    lanes = Lanes(LaneTask(SETTINGS, 1, (1, 2)), {})
    lanes = lanes.after([LaneReport(0, row_bytes=200), LaneReport(1, row_bytes=MEGABYTE)])
    assert lanes.row_bytes == MEGABYTE
    for share in (2, 4, 8):
        lanes = lanes.after([LaneReport(0, row_bytes=200)])
        assert lanes.row_bytes == MEGABYTE // share
    assert lanes.after([LaneReport(0, row_bytes=MEGABYTE)]).row_bytes == MEGABYTE


def test_what_a_row_took_comes_back_with_the_report() -> None:
    [row] = report_row([LaneReport(3, row_bytes=77)]).to_pylist()
    assert [report.row_bytes for report in reports_in([row["reports"]])] == [77]
