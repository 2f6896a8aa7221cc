"""The shuffled path: windows, aggregations and `window` dedup, with the same guarantee as the lanes.

    events      decoded; set aside are those that are not sound, and those that are late
    state       Spark's: the user's windows over all other events, or dedup by id in front of the user's transform
    lanes       each result goes to the lane of its key's hash; fence, recall, skip, write, report, in each task

Guarantee: a lane is a hash of the output key, a column; never Spark's partition id, which a replay may change. All that
a batch makes of source records, results, dead letters and late records, is written with the batch's token. It leans on
Spark's checkpoint, which holds the state: losing it stops the job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pipeline.errors import SafeStop
from pipeline.flow.lateness import ERROR, LATE, judged, timely, watermark
from pipeline.flow.outputs import HEADERS_TYPE
from pipeline.flow.part import PART_COLUMNS, part_body
from pipeline.flow.planned import planned, state_of
from pipeline.flow.report_rows import REPORT_SCHEMA
from pipeline.flow.source import KEY, SOURCE, records
from pipeline.flow.source import batch as batch_of
from pipeline.flow.usercode import apply, results
from pipeline.flow.window_dedup import distinct, identified
from pipeline.lanes.report import LaneReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

    from pipeline.flow.batch import Lanes
    from pipeline.flow.codec import Codec
    from pipeline.lanes.token import Planned
    from pipeline.settings import Settings

# The header by which a reader knows that a result is to be added to an earlier one.
CORRECTION = ("correction", b"late")
# What a row for a lane may leave out.
ITEM_COLUMNS = {
    "key": "binary",
    "partition": "int",
    "offset": "long",
    "timestamp": "long",
    "error": "string",
    "time": "long",
}
# Tried for each lane until Spark's own hash sends one to each task.
SALTS_PER_LANE = 64
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
        if self.settings.dedup.strategy == "window":
            sound = distinct(identified(events, self.settings.dedup), self.settings.dedup)
            made = apply(self.function, sound, self.codec).select("partition", "offset", "outputs", "error")
            made = made.withColumn("time", f.col("offset"))
        else:
            sound = timely(judged(events, self.settings.windows), self.settings.windows).drop(KEY, SOURCE)
            made = results(self.function, sound, self.codec).withColumn("time", f.unix_millis("time"))
        check_one_read(made)
        return made

    def write(self, batch: DataFrame, batch_id: int, lanes: Lanes) -> list[LaneReport]:
        """Write one batch; a report may hold a reason to stop."""
        spark = batch.sparkSession  # a session of the query's own, which knows of no query
        plan = planned(spark, self.settings, self.folder, batch_id, self.starts)
        rows, bytes_held = state_of(self.spark, plan.query_id)
        template = replace(lanes.task, planned=plan, state_rows=rows, state_bytes=bytes_held)
        tasks = [
            replace(template, partition=lane, recalled=lanes.handed_over(lane)) for lane in range(len(plan.offsets))
        ]
        with watermark(spark.sparkContext, plan.watermark_ms):
            items = self._items(batch, plan)
            written = to_lanes(items, len(tasks)).mapInArrow(part_body(tasks), REPORT_SCHEMA)
            reports = [LaneReport.from_text(row["report"], bytes(row["record"])) for row in written.collect()]
        check_reports(reports, len(tasks), batch_id)
        return reports

    def _items(self, batch: DataFrame, plan: Planned) -> DataFrame:
        """Everything that the lanes must know, one row for each."""
        items = results_of(batch, plan, counted=self.settings.dedup.strategy == "window")
        if plan.offsets == plan.firsts:
            return items  # no new events: the batch only closes windows
        events = self._again(batch.sparkSession, plan)
        items = items.unionByName(each_of(events, plan), allowMissingColumns=True)
        if self.settings.windows.late == "correct" and self.settings.flow.path == "windows":
            made = corrections(self.function, events, self.codec)
            items = items.unionByName(results_of(made, plan), allowMissingColumns=True)
        return items

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


def results_of(made: DataFrame, plan: Planned, *, counted: bool = False) -> DataFrame:
    """Each output to the lane of its own key; if `counted`, each row as well, to the lane of its source partition.

    In one pass: Spark would run the whole batch once more for a second look at it.
    """
    kind = made.schema["outputs"].dataType

    def row(name: Column, lane: Column, key: Column, outputs: Column) -> Column:
        parts = {"lane": lane, "kind": name, "key": key.cast("binary"), "outputs": outputs.cast(kind)}
        return f.struct(*(column.alias(part) for part, column in parts.items()))

    held = f.coalesce(f.filter("outputs", lambda one: one.isNotNull()), f.array().cast(kind))
    rows = f.transform(held, lambda one: row(f.lit("output"), lane_of(one["key"], plan), one["key"], f.array(one)))
    if counted:
        name = f.when(f.size(held) > 0, "kept").otherwise("dropped")
        rows = f.concat(f.array(row(name, f.col("partition"), f.lit(None), f.lit(None))), rows)
    place = [name for name in ("partition", "offset", "error") if name in made.columns]
    return made.select(f.explode(rows).alias("row"), "time", *place).select("row.*", "time", *place)


def each_of(events: DataFrame, plan: Planned) -> DataFrame:
    """One row for each source record, which counts it, and another where it is set aside."""
    place = f.struct(*(f.col(f"{SOURCE}.{name}") for name in ("partition", "offset", "timestamp")), f.col(ERROR))
    own = lane_of(f.col(KEY), plan)
    rows = f.array(
        f.struct(f.col(f"{SOURCE}.partition").alias("lane"), f.lit("read").alias("kind")),
        f.when(f.col(ERROR).isNotNull(), f.struct(own.alias("lane"), f.lit("dead").alias("kind"))),
        f.when(f.col(LATE), f.struct(own.alias("lane"), f.lit("late").alias("kind"))),
    )
    laid_out = events.select(f.col(KEY).alias("key"), place.alias("place"), f.explode(rows).alias("row"))
    return laid_out.where("row is not null").select(
        "row.*", "key", "place.partition", "place.offset", "place.timestamp", f.col(f"place.{ERROR}").alias("error")
    )


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


def lane_of(key: Column, plan: Planned) -> Column:
    """The lane of a result: by its key alone, so that a replay sends it to the same one."""
    return f.pmod(f.xxhash64(key), f.lit(len(plan.offsets))).cast("int")


def to_lanes(items: DataFrame, lanes: int) -> DataFrame:
    """Each lane's rows to a task of their own, in order; a row that marks the lane makes sure that it has one."""
    spark = items.sparkSession
    marks = spark.range(lanes).select(f.col("id").cast("int").alias("lane"), f.lit("lane").alias("kind"))
    for name, kind in ITEM_COLUMNS.items():
        if name not in items.columns:
            items = items.withColumn(name, f.lit(None).cast(kind))
    # As wide as the numbers that were tried: Spark's hash depends on the type.
    salt = f.element_at(f.array(*(f.lit(number).cast("long") for number in salts(lanes))), f.col("lane") + 1)
    salted = items.unionByName(marks, allowMissingColumns=True).withColumn("salt", salt)
    ordered = salted.repartition(lanes, "salt").sortWithinPartitions("key", "time", "offset", comparable(items))
    return ordered.select(*PART_COLUMNS)


def comparable(items: DataFrame) -> Column:
    """What orders the results of one key and time; Spark has no order of maps, but of their text."""
    holds_maps = "map<" in items.schema["outputs"].dataType.simpleString()
    return f.to_json("outputs") if holds_maps else f.col("outputs")


@cache
def salts(lanes: int) -> list[int]:
    """A number for each lane that Spark's hash sends to a task which no other lane has; tasks check what they get."""
    found: dict[int, int] = {}
    tried = (
        SparkSession.active()
        .range(SALTS_PER_LANE * lanes)
        .select("id", f.pmod(f.hash("id"), f.lit(lanes)).alias("task"))
    )
    for row in tried.collect():
        found.setdefault(row["task"], row["id"])
    if len(found) < lanes:
        msg = f"no {lanes} numbers were found that spread over {lanes} tasks; is this another Spark version?"
        raise SafeStop(msg)
    return [found[task] for task in range(lanes)]
