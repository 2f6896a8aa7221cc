"""One micro-batch: the user's function on the driver's plan, the lane writer in its tasks, the reports back.

Guarantee: tasks and ranges agree one to one, each lane reports exactly once, and only what a lane's committed record
says is handed on; a batch that does not add up stops the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.crossing import Weighed, as_it_comes, map_pieces, told, told_for
from pipeline.flow.plan import check_plan
from pipeline.flow.ranges import ranges_below, ranges_of, rdd_of
from pipeline.flow.report_rows import REPORT_SCHEMA, report_row, reports_in
from pipeline.flow.shares import shared, tasks_for
from pipeline.flow.source import frame_over
from pipeline.flow.spared import spare_tasks
from pipeline.flow.together import ids_of, run_batch, run_together
from pipeline.lanes.handover import settled
from pipeline.lanes.joined import joined
from pipeline.lanes.kept import HAND_OVER_BYTES, keep, keep_large
from pipeline.lanes.report import STOPS
from pipeline.lanes.rows import COLUMNS, lane_rows
from pipeline.lanes.side_by_side import side_by_side
from pipeline.lanes.weaker import writer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from pipeline.flow.crossing import Body
    from pipeline.flow.ranges import Given, Range
    from pipeline.flow.straight import Straight
    from pipeline.lanes.kept import Kept
    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport
    from pipeline.lanes.task import LaneTask

    RunShare = Callable[[list[LaneTask], Iterator[Any]], list[LaneReport]]


@dataclass(frozen=True)
class Lanes:
    """What the driver knows of all lanes; the template of each task."""

    task: LaneTask
    recalled: dict[int, Recalled]
    kept: dict[int, Kept | None] = field(default_factory=dict)  # of those, what tasks have put into files
    row_bytes: int = 0  # what a row took on its way to the tasks, at most, lately; 0 if that is not known

    def after(self, reports: list[LaneReport]) -> Lanes:
        """Take over what the tasks committed."""
        newer = {report.partition: report.recalled for report in reports if report.record}
        kept = {report.partition: report.kept for report in reports if report.record}
        row_bytes = max([self.row_bytes // 2, *(report.row_bytes for report in reports)])
        return replace(self, recalled={**self.recalled, **newer}, kept={**self.kept, **kept}, row_bytes=row_bytes)

    def tasks(self, ranges: Iterable[tuple[int, int, int]]) -> list[LaneTask]:
        """A task for each range, in the order of Spark's tasks."""
        return [
            replace(self.task, partition=partition, first=first, until=until, recalled=self.handed_over(partition))
            for partition, first, until in ranges
        ]

    def settle(self, ids: Mapping[int, str]) -> None:
        """Before lanes are written under these ids: what their last transactions still owe is completed."""
        completed = settled(self.task.settings, self.recalled, ids, self.task.stop_file)
        self.recalled.update(completed)
        self.kept.update(dict.fromkeys(completed))

    def handed_over(self, partition: int) -> Recalled | Kept | None:
        """What a task is told of its lane."""
        recalled = self.recalled[partition]
        if len(recalled.value) <= HAND_OVER_BYTES:
            return recalled
        return self.kept.get(partition) or keep(self.task.folder, partition, recalled)


def write_batch(
    batch: DataFrame,
    rows: Callable[[DataFrame], DataFrame],
    lanes: Lanes,
    before: Callable[[list[Range]], None] = lambda _: None,
) -> list[LaneReport]:
    """Run one micro-batch through codec and user's function, and the lanes; a report may hold a reason to stop.

    `before` is called with its ranges, if it has any, before anything is planned or written.
    """
    ranges = ranges_of(batch)
    if not ranges:
        return []
    before(ranges)
    made = rows(batch)
    check_plan(made, batch, stages=lanes.task.stages)
    return _written(made, rdd_of(made), lanes, ranges)


def write_rows(
    batch: DataFrame, given: Given, lanes: Lanes, before: Callable[[list[Range]], None], straight: Straight
) -> list[LaneReport]:
    """The same for rows with the columns of the batch, its own or others, that the stream has put through all of it.

    Their tasks go straight, without a plan.
    """
    ranges = ranges_below(batch.sparkSession.sparkContext, given.source or given.rdd)
    if not ranges:
        return []
    before(ranges)
    return _written(batch, given.rdd, lanes, ranges, straight)


def _written(
    made: DataFrame, rdd: Any, lanes: Lanes, ranges: list[Range], straight: Straight | None = None
) -> list[LaneReport]:
    """What became of the lanes; `rdd` has the rows, `made` their columns."""
    rdd, body = _tasks(made.sparkSession.sparkContext, rdd, lanes, ranges)
    # A function that is described anew may have stages of its own, for which nothing is known of the rows.
    settings = as_it_comes() if straight is None else told_for(ranges, lanes.row_bytes)
    packed = None
    if straight is not None:
        packed = straight.collected(made, rdd, body, settings, lanes.task.folder / "reports")
    if packed is None:
        with told(made.sparkSession, settings):
            written = map_pieces(frame_over(rdd, made), body, REPORT_SCHEMA, COLUMNS).collect()
        packed = [bytes(row["reports"]) for row in written]
    reports = reports_in(packed)
    lanes_reported = sorted(report.partition for report in reports)
    if lanes_reported != sorted(partition for partition, _, _ in ranges):
        msg = (
            f"the batch has ranges of {len(ranges)} lanes, but lanes {lanes_reported} reported; nothing more is written"
        )
        raise SafeStop(msg)
    return reports


def _tasks(context: SparkContext, rdd: Any, lanes: Lanes, ranges: list[Range]) -> tuple[Any, Body]:
    """The rows by task, and what each task does with its own."""
    together = lanes.task.settings.delivery.atomicity == "batch"
    rdd, places = shared(context, rdd, 1 if together else tasks_for(ranges, context.defaultParallelism))
    lanes.settle(ids_of([[ranges[place][0] for place in own] for own in places], lanes.task.settings))
    tasks = lanes.tasks(ranges)
    shares = [[tasks[place] for place in own] for own in places]
    return rdd, task_body(shares, run_batch if together else run_share)


def task_body(shares: list[list[LaneTask]], run: RunShare) -> Body:
    """The function that Spark runs in each task; `shares` are the lanes of each, in the order of Spark's tasks."""

    def write_lanes(batches: Iterator[Any]) -> Iterator[Any]:
        spare_tasks()
        context = TaskContext.get()
        if context is None:
            msg = "the lane writer runs in Spark tasks only"
            raise PipelineError(msg)
        share = shares[context.partitionId()]
        if context.attemptNumber():  # an earlier attempt may have moved the lanes: what was handed over is in doubt
            share = [replace(task, recalled=None) for task in share]
        weighed = Weighed(batches)
        reports = run(share, iter(weighed))
        for report in reports:
            report.row_bytes = weighed.row_bytes
        yield report_row(reports)

    return write_lanes


def run_share(share: list[LaneTask], batches: Iterator[Any]) -> list[LaneReport]:
    """Write the lanes of a task: exactly once by common transactions, else each by its own."""
    if len(share) == 1:
        return [run_task(share[0], batches)]
    if share[0].settings.delivery.semantics == "exactly-once":
        return run_together(share, batches)
    return side_by_side(share, batches, run_task)


def run_task(task: LaneTask, batches: Iterator[Any]) -> LaneReport:
    """Write a lane; a reason to stop is a result, since Spark would only repeat an exception."""
    writer = writer_of(task)
    try:
        names, schemas = task.settings.identity, task.schemas
        writer.write(lane_rows(joined(batches), task.partition, task.first, task.until, names, schemas))
    except tuple(STOPS.values()) as error:
        writer.report.note_stop(error)
        for _ in batches:  # Spark expects its input to be read to the end
            pass
    keep_large(task.folder, writer.report)
    return writer.report
