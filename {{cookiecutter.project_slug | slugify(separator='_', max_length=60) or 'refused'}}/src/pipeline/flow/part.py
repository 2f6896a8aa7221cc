"""The end of a shuffled batch in its tasks: rows of one lane become one transaction.

Guarantee: a task writes the lane that its rows name, and no other; rows of two lanes in one task stop the job. Behind
`window` dedup the outputs of a record go together, or it is a dead letter as a whole, as on the lanes path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from pipeline.avro.limits import OVERSIZED
from pipeline.avro.limits import told as as_error
from pipeline.errors import SafeStop
from pipeline.flow.report_rows import report_row
from pipeline.flow.spared import spare_tasks
from pipeline.lanes.emitted import emitted
from pipeline.lanes.joined import joined
from pipeline.lanes.report import STOPS, LaneReport
from pipeline.lanes.rows import errors_of
from pipeline.lanes.shuffled import Part, ShuffledWriter
from pipeline.lanes.sizes import too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.flow.crossing import Body
    from pipeline.lanes.task import LaneTask
    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

PART_COLUMNS = ("lane", "kind", "partition", "offset", "timestamp", "error", "outputs")


def part_body(tasks: list[LaneTask]) -> Body:
    """The function that Spark runs in each task."""

    def write_part(batches: Iterator[Any]) -> Iterator[Any]:
        spare_tasks()
        yield report_row([_run(tasks, batches)])

    return write_part


def _run(tasks: list[LaneTask], batches: Iterator[Any]) -> LaneReport:
    """Write a lane; a reason to stop is a result, since Spark would only repeat an exception."""
    report = LaneReport(-1)
    try:
        part = gathered(joined(batches), tasks[0])
        report.partition = part.lane
        task = tasks[part.lane]
        context = TaskContext.get()
        if context is not None and context.attemptNumber():  # an earlier attempt may have moved the lane
            task = replace(task, recalled=None)
        writer = ShuffledWriter(task)
        report = writer.report
        writer.write_part(part)
    except tuple(STOPS.values()) as error:
        report.note_stop(error)
        for _ in batches:  # Spark expects its input to be read to the end
            pass
    return report


def gathered(batches: Iterator[Any], task: LaneTask) -> Part:
    """All that a batch holds for the lane of a task."""
    part, lanes = Part(), set()
    for batch in batches:
        lanes.update(batch.column(PART_COLUMNS.index("lane")).unique().to_pylist())
        _add(part, batch, task)
    if len(lanes) != 1:
        msg = f"a task got rows of lanes {sorted(lanes)} instead of one; is this another Spark version?"
        raise SafeStop(msg)
    [part.lane] = lanes
    return part


def _add(part: Part, batch: Any, task: LaneTask) -> None:
    _, kinds, partitions, offsets, stamps, errors, outputs = batch.columns
    told = errors_of(errors)
    made, wrong = emitted(outputs, task.schemas)
    results, limits = made.by_row(), task.topic_bytes
    large = set(made.with_more_than(min(limits.values()))) if limits else set()
    rows = zip(*(column.to_pylist() for column in (kinds, partitions, offsets, stamps)), strict=True)
    late = task.settings.windows.late
    for place, (kind, partition, offset, stamp) in enumerate(rows):
        if kind == "output":
            _add_result(part, results[place], wrong.get(place), task.settings)
        elif kind == "read":
            part.stamps.append(stamp)
            part.read += place not in told
        elif kind == "kept":
            error = wrong.get(place) or (_oversized(results[place], limits) if place in large else None)
            _add_kept(part, (partition, offset), results[place], error)
        elif kind == "dead":
            part.dead.append((partition, offset, told[place]))
        elif kind == "late" and late != "drop":
            part.late.append((partition, offset))
        elif kind == "late":
            part.late_dropped += 1


def _add_kept(part: Part, place: tuple[int, int], outputs: list[Sendable], error: str | None) -> None:
    """A record that came through dedup."""
    part.kept += 1
    if error is not None:
        part.dead.append((*place, error))
        return
    part.dropped += not outputs
    part.outputs += outputs


def _oversized(outputs: list[Sendable], limits: Mapping[str, int]) -> str | None:
    found = too_large(outputs, limits)
    return None if found is None else as_error(OVERSIZED, found)


def _add_result(part: Part, outputs: list[Sendable], wrong: str | None, settings: Settings) -> None:
    """A result that its schema does not take has no source record to be set aside: the job stops."""
    if wrong is not None:
        msg = f"a result does not fit the schema of its topic ({', '.join(settings.output.topics)}): {wrong}"
        raise SafeStop(msg)
    part.outputs += outputs
