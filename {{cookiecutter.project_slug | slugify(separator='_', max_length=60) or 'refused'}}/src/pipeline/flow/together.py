"""Atomicity `batch` in Spark: one task reads all ranges of a batch, one lane after another, and writes them together.

Guarantee: no shuffle, so each lane's rows come in offset order; rows are told apart by their own partition, never by
their place. The batch is gathered before its transaction is begun: user code takes no time of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pipeline.errors import SafeStop
from pipeline.lanes.joined import joined
from pipeline.lanes.report import STOPS, LaneReport
from pipeline.lanes.rows import Chunk, lane_rows
from pipeline.lanes.side_by_side import by_lane
from pipeline.lanes.together import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.lanes.task import LaneTask


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
    parts: dict[int, list[Any]] = defaultdict(list)
    for partition, batch in by_lane(batches):
        parts[partition].append(batch)
    if foreign := parts.keys() - {task.partition for task in tasks}:
        msg = f"rows of partitions {sorted(foreign)}, which are not in the batch: transform must keep rows as they are"
        raise SafeStop(msg)
    chunks = {}
    for task in tasks:
        names, schemas = task.settings.identity, task.schemas
        rows = lane_rows(joined(parts[task.partition]), task.partition, task.first, task.until, names, schemas)
        chunks[task.partition] = Chunk(task.first, task.until, list(rows))
    return chunks
