"""Which lanes a task has: read off Spark's own partitions, so that each range is in exactly one share, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, lit, rand
from tests.support.spark import columns

from pipeline.errors import SafeStop
from pipeline.flow.outputs import emit, output
from pipeline.flow.plan import check_described
from pipeline.flow.ranges import Range, rdd_of
from pipeline.flow.sequel import asks_for_time
from pipeline.flow.shares import OFFSETS, shared, tasks_for
from pipeline.flow.source import frame_over
from pipeline.flow.usercode import rows_of, transform_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.mark.parametrize(
    ("sizes", "slots", "tasks"),
    [
        ([10] * 8, 2, 2),
        ([10] * 3, 8, 3),
        ([0, 0], 1, 1),
        ([OFFSETS] * 8, 2, 8),
        ([OFFSETS] * 8, 64, 8),
        ([OFFSETS // 2] * 64, 2, 32),
        ([OFFSETS * 5, 1, 1, 1], 2, 4),
    ],
)
def test_small_ranges_go_several_to_a_task_and_no_slot_is_left_idle(sizes: list[int], slots: int, tasks: int) -> None:
    assert tasks_for([Range(lane, 0, size) for lane, size in enumerate(sizes)], slots) == tasks


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as they come, behind the number of their task."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        task = pa.array([context.partitionId()] * batch.num_rows)
        yield pa.record_batch([task, *batch.columns], names=["task", "part", "id"])


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 7, 9])
def test_each_task_has_the_ranges_that_it_is_told_and_each_of_them_whole_and_in_order(
    spark: SparkSession, tasks: int
) -> None:
    rows = spark.range(0, 70, 1, 7).select((col("id") / 10).cast("int").alias("part"), "id")
    rdd, places = shared(spark.sparkContext, rdd_of(rows), tasks)
    assert sorted(place for own in places for place in own) == list(range(7))
    assert len(places) == min(tasks, 7)
    found: dict[int, list[int]] = {}
    for row in frame_over(rdd, rows).mapInArrow(numbered, "task long, part int, id long").collect():
        found.setdefault(row["task"], []).append(row["id"])
    assert found == {
        task: [10 * place + number for place in own for number in range(10)] for task, own in enumerate(places)
    }


def relay(events: DataFrame) -> DataFrame:
    """Write a column as it is."""
    return events.withColumn("outputs", emit(output("x", key=None, value=col("id"))))


def with_table(events: DataFrame) -> DataFrame:
    """Look something up in a table."""
    table = SparkSession.active().createDataFrame([("a", "x")], "id string, name string")
    return relay(events.join(broadcast(table), "id", "left"))


def with_query(events: DataFrame) -> DataFrame:
    """Take a value out of a table."""
    table = SparkSession.active().createDataFrame([(1,)], "size int").agg({"size": "max"})
    return relay(events.withColumn("size", lit(0) + table.scalar()))


def described_once(spark: SparkSession, function: Callable[[DataFrame], DataFrame]) -> bool:
    """Return whether a job would call the function once, at its start."""
    codec = columns(id="string")
    return transform_checked(spark, rows_of(function, codec), codec)


def test_what_is_made_of_events_alone_is_described_once(spark: SparkSession) -> None:
    assert described_once(spark, relay)


def with_chance(events: DataFrame) -> DataFrame:
    """Add a number that nobody can foresee."""
    return relay(events.withColumn("number", rand()))


@pytest.mark.parametrize("function", [with_table, with_query, with_chance])
def test_what_reads_a_table_or_holds_chance_is_described_in_each_batch(
    spark: SparkSession, function: Callable[[DataFrame], DataFrame]
) -> None:
    assert not described_once(spark, function)


@pytest.mark.parametrize(
    "asked",
    [
        "current_timestamp()",
        "now()",
        "current_date()",
        "localtimestamp()",
        "cast('now' AS timestamp)",
        "cast(concat('to', 'day') AS date)",
        "to_date('yesterday')",
        "to_timestamp('tomorrow')",
    ],
)
def test_a_function_that_asks_for_the_time_is_known_however_deep_it_does(spark: SparkSession, asked: str) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    assert not asks_for_time(stream.selectExpr("if(id > 1, id + 1, 0) AS more"))
    deep = stream.selectExpr(f"named_struct('at', if(id > 1, date_format({asked}, 'y'), null)) AS more")
    assert asks_for_time(deep.withColumn("last", lit(1)))


def test_a_description_that_does_not_keep_rows_is_refused_in_the_stream_too(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    check_described(stream.withColumn("more", col("id") + 1))
    with pytest.raises(SafeStop, match="the operator Filter is not allowed"):
        check_described(stream.filter("id > 1"))
