"""How a batch's rows find their lanes: one row for each result, each source record, and each that is set aside.

Guarantee: a lane is a hash of the output key, or behind `window` dedup the source partition: a column, never Spark's
partition id, which a replay may change. Each lane's rows come to a task of their own, in order.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pipeline.errors import SafeStop
from pipeline.flow.lateness import ERROR, LATE
from pipeline.flow.outputs import OUTPUTS_TYPE
from pipeline.flow.part import PART_COLUMNS
from pipeline.flow.source import KEY, SOURCE, source_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.lanes.token import Planned

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


def results_of(made: DataFrame, plan: Planned) -> DataFrame:
    """Each output to the lane of its own key."""

    def row(one: Column) -> Column:
        return f.struct(lane_of(one["key"], plan).alias("lane"), one["key"].alias("key"), f.array(one).alias("outputs"))

    held = f.filter("outputs", lambda one: one.isNotNull())
    rows = made.select(f.explode(f.transform(held, row)).alias("row"), "time")
    return rows.select("row.*", f.lit("output").alias("kind"), "time")


def records_of(made: DataFrame) -> DataFrame:
    """Behind dedup: each source record, and what becomes of it, in the lane of its partition and in offset order.

    So the outputs of a record are one transaction, whatever their keys.
    """
    kind = made.schema["outputs"].dataType

    def row(name: str, outputs: Column) -> Column:
        return f.struct(f.lit(name).alias("kind"), outputs.cast(kind).alias("outputs"))

    rows = f.array(
        row("read", f.lit(None)),
        f.when(f.col("error").isNotNull(), row("dead", f.lit(None))),
        f.when(f.col("digest") == 1, row("kept", f.col("outputs"))),
    )
    place = "partition", "offset", "timestamp", "error"
    laid_out = made.select(f.explode(rows).alias("row"), *place).where("row is not null")
    return laid_out.select(f.col("partition").alias("lane"), "row.*", f.col("offset").alias("time"), *place)


def nothing_of(batch: DataFrame) -> DataFrame:
    """A batch without new records as rows that say nothing: Spark must run it all the same, to forget what is old."""
    nothing = f.lit(None).cast(OUTPUTS_TYPE).alias("outputs")
    return batch.select(f.lit(0).alias("lane"), f.lit("lane").alias("kind"), nothing)


def each_of(events: DataFrame, plan: Planned) -> DataFrame:
    """One row for each source record, which counts it, and another where it is set aside."""
    place = f.struct(*map(source_field, ("partition", "offset", "timestamp")), f.col(ERROR))
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
