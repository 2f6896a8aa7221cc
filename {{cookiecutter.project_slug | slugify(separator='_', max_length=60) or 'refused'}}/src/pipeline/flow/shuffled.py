"""The shuffled path: windows, aggregations and `window` dedup, with the same guarantee as the lanes.

    events      decoded; set aside are those that are not sound, and those that are late
    state       Spark's: the user's windows over all other events, or dedup by id in front of the user's transform
    lanes       each result goes to the lane of its key's hash, behind dedup to that of its source partition; fence,
                recall, skip, write, report, in each task

Guarantee: which lane something belongs to is the same when a batch is run again. All that a batch makes of source
records, results, dead letters and late records, is written with the batch's token. It leans on Spark's checkpoint,
which holds the state: losing it stops the job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pipeline.errors import SafeStop
from pipeline.flow.lateness import ERROR, LATE, judged, timely, watermark
from pipeline.flow.outputs import HEADERS_TYPE
from pipeline.flow.part import part_body
from pipeline.flow.planned import check_all, planned, state_of
from pipeline.flow.recipe import code_of, settings_of
from pipeline.flow.report_rows import REPORT_SCHEMA, reports_in
from pipeline.flow.source import KEY, SOURCE, records
from pipeline.flow.source import batch as batch_of
from pipeline.flow.spread import each_of, nothing_of, records_of, results_of, to_lanes
from pipeline.flow.usercode import apply, results
from pipeline.flow.window_dedup import distinct, first_copies, identified

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.flow.batch import Lanes
    from pipeline.flow.codec import Codec
    from pipeline.lanes.report import LaneReport
    from pipeline.lanes.token import Planned
    from pipeline.settings import Settings

# The header by which a reader knows that a result is to be added to an earlier one.
CORRECTION = ("correction", b"late")
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Only what changed is uploaded after each batch, not whole files.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A batch without new events closes the windows that the one before has made due.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}


@dataclass(frozen=True)
class Shuffled:
    """The path of one job; `function` is the user's: windows over events, or a transform behind dedup."""

    settings: Settings
    codec: Codec
    function: Callable[[DataFrame], DataFrame]
    folder: str
    starts: Mapping[int, int]
    spark: SparkSession

    def query(self, raw: DataFrame) -> DataFrame:
        """The streaming frame: what Spark keeps state for, over one read of the source."""
        events = self.codec.decode(records(raw))
        self._made_by  # noqa: B018  now: a file may be changed while the job runs by what it has read
        if self.settings.dedup.strategy == "window":
            made = distinct(identified(events, self.settings.dedup), self.settings.dedup)
        else:
            sound = timely(judged(events, self.settings.windows), self.settings.windows).drop(KEY, SOURCE)
            made = results(self.function, sound, self.codec).withColumn("time", f.unix_millis("time"))
        check_one_read(made)
        return made

    @cached_property
    def _made_by(self) -> tuple[bytes, bytes]:
        by_key = self.settings.flow.path == "windows"
        return code_of(self.function if by_key else None), settings_of(self.settings, self.codec)

    def write(self, batch: DataFrame, batch_id: int, lanes: Lanes) -> list[LaneReport]:
        """Write one batch; a report may hold a reason to stop."""
        spark = batch.sparkSession  # a session of the query's own, which knows of no query
        code, settings = self._made_by
        plan = planned(spark, self.settings, self.folder, batch_id, self.starts)
        plan = replace(plan, code=code, settings=settings)
        check_all(plan, self.settings, self.folder, lanes.recalled)
        rows, bytes_held = state_of(self.spark, plan.query_id, lanes.recalled)
        template = replace(lanes.task, planned=plan, state_rows=rows, state_bytes=bytes_held)
        tasks = [
            replace(template, partition=lane, recalled=lanes.handed_over(lane)) for lane in range(len(plan.offsets))
        ]
        with watermark(spark.sparkContext, plan.watermark_ms):
            items = self._items(batch, plan)
            written = to_lanes(items, len(tasks)).mapInArrow(part_body(tasks), REPORT_SCHEMA)
            reports = reports_in(bytes(row["reports"]) for row in written.collect())
        check_reports(reports, len(tasks), batch_id)
        return reports

    def _items(self, batch: DataFrame, plan: Planned) -> DataFrame:
        """Everything that the lanes must know, one row for each."""
        if self.settings.dedup.strategy == "window":
            return self._deduplicated(batch, plan)
        items = results_of(batch, plan)
        if plan.offsets == plan.firsts:
            return items  # no new events: the batch only closes windows
        events = self._again(batch.sparkSession, plan)
        items = items.unionByName(each_of(events, plan), allowMissingColumns=True)
        if self.settings.windows.late == "correct" and self.settings.flow.path == "windows":
            made = corrections(self.function, events, self.codec)
            items = items.unionByName(results_of(made, plan), allowMissingColumns=True)
        return items

    def _deduplicated(self, batch: DataFrame, plan: Planned) -> DataFrame:
        """The same behind dedup; the batch holds the ids that are new."""
        if plan.offsets == plan.firsts:
            return nothing_of(batch)
        events = first_copies(self._again(batch.sparkSession, plan), batch, self.settings.dedup)
        return records_of(apply(self.function, events, self.codec))

    def _again(self, spark: SparkSession, plan: Planned) -> DataFrame:
        """The batch's events as they came, judged by the same rules: Spark hands on none that it did not count."""
        ranges = dict(enumerate(zip(plan.firsts, plan.offsets, strict=True)))
        events = self.codec.decode(records(batch_of(spark, self.settings, ranges)))
        if self.settings.dedup.strategy == "window":
            return identified(events, self.settings.dedup)
        return judged(events, self.settings.windows)


def check_reports(reports: list[LaneReport], lanes: int, batch_id: int) -> None:
    """Each lane reported exactly once; a task that could not even tell its lane says why."""
    if sorted(report.partition for report in reports) == list(range(lanes)):
        return
    for report in reports:
        report.raise_stop()
    msg = f"batch {batch_id} has {lanes} lanes, but {len(reports)} reported; nothing more is written"
    raise SafeStop(msg)


def check_one_read(made: DataFrame) -> None:
    """A function that reads the events twice would see two cuts of them in one batch."""
    leaves = made._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001  the plan has no Python face
    reads = sum(bool(leaves.apply(place).isStreaming()) for place in range(leaves.size()))
    if reads != 1:
        msg = (
            f"windows: the function reads the events {reads} times, by a union or a join with themselves; lay all its "
            "windows out with spans(...) and group once, or let one job for each write to a topic"
        )
        raise SafeStop(msg)


def corrections(function: Callable[[DataFrame], DataFrame], events: DataFrame, codec: Codec) -> DataFrame:
    """The user's windows over the late events alone: their counts and sums are to be added to the first ones."""
    made = results(function, events.where(LATE).drop(KEY, SOURCE, ERROR, LATE), codec)
    name, value = CORRECTION
    mark = f.struct(f.lit(name).alias("key"), f.lit(value).alias("value"))

    def marked(one: Column) -> Column:
        headers = f.coalesce(one["headers"], f.array().cast(HEADERS_TYPE))
        return one.withField("headers", f.concat(headers, f.array(mark)))

    held = f.filter("outputs", lambda one: one.isNotNull())
    return made.select(f.transform(held, marked).alias("outputs"), f.unix_millis("time").alias("time"))
