"""Atomicity `batch` in Spark: one task reads all ranges of a batch, one lane after another, and writes them together.

Guarantee: no shuffle, so each lane's rows come in offset order; rows are told apart by their own partition, never by
their place. The batch is gathered before its transaction is begun: user code takes no time of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pipeline.errors import SafeStop
from pipeline.flow.report_rows import REPORT_SCHEMA, report_rows
from pipeline.flow.spared import spare_tasks
from pipeline.lanes.joined import joined
from pipeline.lanes.report import STOPS, LaneReport
from pipeline.lanes.rows import COLUMNS, Chunk, lane_rows
from pipeline.lanes.together import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from pipeline.lanes.task import LaneTask


def written_together(rows: DataFrame, tasks: list[LaneTask]) -> DataFrame:
    """The reports of all lanes, once one task has written them."""
    return rows.coalesce(1).mapInArrow(batch_body(tasks), REPORT_SCHEMA)


def batch_body(tasks: list[LaneTask]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that Spark runs in the one task."""

    def write_lanes(batches: Iterator[Any]) -> Iterator[Any]:
        spare_tasks()
        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        # An earlier attempt may have moved the lanes: what was handed over is in doubt then.
        given = [replace(task, recalled=None) for task in tasks] if again else tasks
        yield report_rows(run_together(given, batches))

    return write_lanes


def run_together(tasks: list[LaneTask], batches: Iterator[Any]) -> list[LaneReport]:
    """Write all lanes; a reason to stop is a result, since Spark would only repeat an exception."""
    writer = BatchWriter(tasks)
    try:
        writer.write(chunks_of(tasks, batches))
    except tuple(STOPS.values()) as error:
        writer.reports[0].note_stop(error)
        for _ in batches:  # Spark expects its input to be read to the end
            pass
    return writer.reports


def chunks_of(tasks: list[LaneTask], batches: Iterable[Any]) -> dict[int, Chunk]:
    """Each lane's whole range as one chunk; one without rows advances its lane all the same."""
    parts = by_lane(batches)
    if foreign := parts.keys() - {task.partition for task in tasks}:
        msg = f"rows of partitions {sorted(foreign)}, which are not in the batch: transform must keep rows as they are"
        raise SafeStop(msg)
    chunks = {}
    for task in tasks:
        names, schemas = task.settings.identity, task.schemas
        rows = lane_rows(joined(parts[task.partition]), task.partition, task.first, task.until, names, schemas)
        chunks[task.partition] = Chunk(task.first, task.until, list(rows))
    return chunks


def by_lane(batches: Iterable[Any]) -> dict[int, list[pa.RecordBatch]]:
    """Record batches cut by source partition, which their rows name; in the order in which they came."""
    parts: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in batches:
        partitions = batch.column(COLUMNS.index("partition"))
        for partition in partitions.unique().to_pylist():
            parts[partition].append(batch.filter(pc.equal(partitions, partition)))
    return parts
