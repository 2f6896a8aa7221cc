"""A lane's part of a shuffled batch, without Spark or Kafka: what its rows become, and how a task tells its reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lanes import settings_for
from tests.support.rows import OUTPUT, output

from pipeline.errors import RegistryAway, SafeStop
from pipeline.flow.part import PART_COLUMNS, gathered, part_body
from pipeline.flow.report_rows import reports_in
from pipeline.flow.shuffled import check_reports
from pipeline.lanes.encoded import OutputSchema
from pipeline.lanes.report import Commit, LaneReport
from pipeline.lanes.shuffled import reason
from pipeline.lanes.task import LaneTask

TYPES = (pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string(), pa.list_(OUTPUT))
SCHEMA = pa.schema(list(zip(PART_COLUMNS, TYPES, strict=True)))
RESULT = ("totals", b"k", b"v", None)
TASK = LaneTask(settings_for("localhost:1", "payments"), 1, (1, 2))
MARK = (0, "lane", None, None, None, None, None)


def rows(*given: tuple[Any, ...]) -> pa.RecordBatch:
    """Return rows of a part as they come from Spark."""
    return pa.RecordBatch.from_pylist([dict(zip(PART_COLUMNS, row, strict=True)) for row in given], SCHEMA)


def told(*batches: pa.RecordBatch) -> LaneReport:
    """Return what the driver hears of a task that got these."""
    [answer] = part_body([TASK])(iter(batches))
    [row] = answer.to_pylist()
    [report] = reports_in([row["reports"]])
    return report


def test_each_row_counts_as_its_kind_says() -> None:
    late = ((0, kind, 1, 7, 50, None, None) for kind in ("read", "late"))
    dead = ((0, kind, 2, 9, 60, "time: none", None) for kind in ("read", "dead"))
    made = (0, "output", None, None, None, None, [output(*RESULT)])
    kept = (0, "kept", 0, 3, None, None, [output(*RESULT), None]), (0, "kept", 0, 4, None, None, None)
    part = gathered(iter([rows(MARK, *late), rows(*dead, made, *kept)]), TASK)
    assert (part.lane, part.stamps, part.read, part.outputs) == (0, [50, 60], 1, [RESULT, RESULT])
    assert (part.dead, part.late) == ([(2, 9, "time: none")], [(1, 7)])
    assert (part.kept, part.dropped) == (2, 1)
    commit = Commit().describe([part], written=1)
    assert (commit.rows, commit.oldest_ms, commit.newest_ms) == (2, 50, 60)


def test_an_output_that_its_topic_does_not_take_makes_a_dead_letter_of_its_whole_record_behind_dedup() -> None:
    large = ("totals", b"k", b"v" * 1_000, None)
    task = replace(TASK, topic_bytes={"totals": 500, "wide": 5_000})
    kept = (0, "kept", 1, 7, None, None, [output(*RESULT), output(*large)])
    wide = (0, "kept", 1, 8, None, None, [output("wide", *large[1:])])
    part = gathered(iter([rows(MARK, kept, wide)]), task)
    assert (part.kept, part.dropped, part.outputs) == (2, 0, [("wide", *large[1:])])
    [(partition, offset, error)] = part.dead
    assert (partition, offset) == (1, 7)
    assert reason(error) == (
        "oversized",
        "its output to totals has 1129 bytes, the topic takes 500 (max.message.bytes)",
    )


def test_an_output_that_does_not_fit_its_schema_makes_a_dead_letter_behind_dedup_and_stops_windows() -> None:
    schema = {"type": "record", "name": "Total", "fields": [{"name": "id", "type": "string"}]}
    task = replace(TASK, schemas={"totals": OutputSchema(json.dumps(schema))})
    records = pa.struct([("0:totals", pa.struct([("id", pa.string())]))])
    kind = pa.list_(pa.struct([*OUTPUT, ("records", records)]))
    unfit = {**output("totals", b"k", None, None), "records": {"0:totals": {"id": None}}}

    def batch(name: str) -> pa.RecordBatch:
        row = dict(zip(PART_COLUMNS, (0, name, 1, 7, None, None, [unfit]), strict=True))
        return pa.RecordBatch.from_pylist([row], SCHEMA.set(len(PART_COLUMNS) - 1, pa.field("outputs", kind)))

    part = gathered(iter([batch("kept")]), task)
    assert [(*place, reason(error)[0]) for *place, error in part.dead] == [(1, 7, "encode")]
    assert (part.kept, part.dropped, part.outputs) == (1, 0, [])
    with pytest.raises(SafeStop, match="a result does not fit the schema of its topic"):
        gathered(iter([batch("output")]), task)


def test_a_part_without_records_is_described_as_one() -> None:
    part = gathered(iter([rows(MARK)]), TASK)
    assert (part.stamps, part.outputs) == ([], [])
    assert Commit().describe([part], written=0).rows == 0


def test_rows_of_two_lanes_in_one_task_stop_the_job() -> None:
    report = told(rows(MARK, (1, *MARK[1:])))
    with pytest.raises(SafeStop, match=r"rows of lanes \[0, 1\] instead of one"):
        report.raise_stop()


def test_a_task_that_cannot_gather_its_part_says_why() -> None:
    report = told(rows(MARK, (0, "dead", 0, 1, 2, "stop: the registry is away", None)))
    with pytest.raises(RegistryAway, match="the registry is away"):
        check_reports([report, LaneReport(1)], 2, 7)


def test_a_lane_that_does_not_report_or_reports_twice_stops_the_job() -> None:
    check_reports([LaneReport(1), LaneReport(0)], 2, 7)
    for lanes in ([0], [0, 0], [0, 1, 2], [-1, 1]):
        with pytest.raises(SafeStop, match=f"batch 7 has 2 lanes, but {len(lanes)} reported"):
            check_reports([LaneReport(lane) for lane in lanes], 2, 7)
