"""What a transform may do: each way to lose, multiply or move rows is refused by its name, with how to write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import (
    array,
    broadcast,
    col,
    explode,
    first,
    lit,
    pandas_udf,
    rand,
    row_number,
    struct,
    udf,
)
from pyspark.sql.functions import max as largest
from tests.support.spark import columns, written

from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.outputs import emit, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = columns(id="string", count="int")
VALUES = [b'{"id":"a","count":1}', b'{"id":"b","count":2}']


@pytest.fixture
def run(spark: SparkSession) -> Callable[[Callable[[DataFrame], Any]], list[Any]]:
    """Return the values that a transform writes, event by event."""

    def values(transform: Callable[[DataFrame], Any]) -> list[Any]:
        return [[item.value for item in items] for items in written(spark, SCHEMA, transform, VALUES)]

    return values


def emitted(events: DataFrame, value: str = "id") -> DataFrame:
    """Write a column as text in quotes."""
    return events.withColumn("outputs", emit(output("x", key=None, value=quoted(value))))


def quoted(column: str) -> Any:
    """Return a column as JSON text."""
    return udf(lambda value: None if value is None else f'"{value}"', "string")(column)


def table() -> DataFrame:
    """Return a static table whose size Spark does not know, as of most files."""
    return SparkSession.active().createDataFrame([("a", "x"), ("b", "y")], "id string, name string")


def unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    """Do nothing, as any function over whole batches may."""
    yield from batches


REFUSED: dict[str, tuple[str, str, Callable[[DataFrame], DataFrame]]] = {
    "filter": ("Filter", "output(...).when(condition)", lambda events: emitted(events.filter("count > 1"))),
    "filter behind": ("Filter", "output(...).when(condition)", lambda events: emitted(events).filter("count > 1")),
    "filter of nothing": ("LocalTableScan", "", lambda events: emitted(events.filter(lit(False)))),  # noqa: FBT003
    "explode": (
        "Generate",
        "pass several outputs to `emit(...)`",
        lambda events: emitted(events.withColumn("n", explode(array(lit(1), lit(2))))),
    ),
    "union": ("Union", "pass several outputs to `emit(...)`", lambda events: emitted(events.union(events))),
    "orderBy": ("Sort", "offset order", lambda events: emitted(events.orderBy("count"))),
    "sort within a lane": ("Sort", "offset order", lambda events: emitted(events.sortWithinPartitions("count"))),
    "repartition": ("Exchange", "shuffle", lambda events: emitted(events.repartition(3))),
    "coalesce": ("Coalesce", "its own task", lambda events: emitted(events.coalesce(1))),
    "groupBy": (
        "SortAggregate",
        "shuffle",
        lambda events: emitted(events.groupBy("id").agg(first("_source").alias("_source"))),
    ),
    "distinct": ("HashAggregate", "shuffle", lambda events: emitted(events.select("id", "_source").distinct())),
    "dropDuplicates": ("SortAggregate", "shuffle", lambda events: emitted(events.dropDuplicates(["id"]))),
    "limit": ("CollectLimit", "output(...).when(condition)", lambda events: emitted(events).limit(1)),
    "offset": ("GlobalLimit", "output(...).when(condition)", lambda events: emitted(events.offset(1))),
    "sample": ("Sample", "output(...).when(condition)", lambda events: emitted(events.sample(0.5))),
    "window": (
        "Window",
        "shuffle",
        lambda events: emitted(
            events.withColumn("n", row_number().over(Window.partitionBy("id").orderBy("count"))), "n"
        ),
    ),
    "mapInPandas": (
        "MapInPandas",
        "use columns or a UDF",
        lambda events: emitted(events.mapInPandas(unchanged, events.schema)),
    ),
    "mapInArrow": (
        "MapInArrow",
        "use columns or a UDF",
        lambda events: emitted(events.mapInArrow(unchanged, events.schema)),
    ),
    "cache": ("InMemoryTableScan", "do not cache", lambda events: emitted(events.cache())),
    "inner join": ("BroadcastHashJoin", "how='left'", lambda events: emitted(events.join(broadcast(table()), "id"))),
    "semi join": (
        "BroadcastHashJoin",
        "how='left'",
        lambda events: emitted(events.join(broadcast(table()), "id", "left_semi")),
    ),
    "anti join": (
        "BroadcastHashJoin",
        "how='left'",
        lambda events: emitted(events.join(broadcast(table()), "id", "left_anti")),
    ),
    "join without broadcast": (
        "SortMergeJoin",
        "broadcast(table)",
        lambda events: emitted(events.join(table(), "id", "left")),
    ),
    "events on the right": (
        "BroadcastHashJoin",
        "events on the left",
        lambda events: emitted(broadcast(events).join(table(), "id", "right")),
    ),
    "events as the table": (
        "BroadcastHashJoin",
        "events on the left",
        lambda events: emitted(table().join(broadcast(events), "id", "left")),
    ),
    "cross join": (
        "BroadcastNestedLoopJoin",
        "how='left'",
        lambda events: emitted(events.crossJoin(broadcast(table().select("name")))),
    ),
    "another frame": (
        "Scan ExistingRDD",
        "return `events`",
        lambda events: emitted(table().withColumn("_source", lit(None).cast(events.schema["_source"].dataType))),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_not_keep_rows_is_refused_by_its_name_with_the_remedy(
    run: Callable[[Callable[[DataFrame], Any]], list[Any]], name: str
) -> None:
    operator, remedy, transform = REFUSED[name]
    with pytest.raises(SafeStop) as refused:
        run(transform)
    assert str(refused.value).startswith(f"transform: the operator {operator} is not allowed between source and sink: ")
    assert remedy in str(refused.value)


def doubled(column: str, kind: str) -> Any:
    """Return a column twice its value, by each kind of function that users write."""
    if kind == "python":
        return udf(lambda value: value * 2, "int")(column)
    if kind == "arrow":
        return udf(lambda value: value * 2, "int", useArrow=True)(column)
    return pandas_udf(lambda values: values * 2, "int")(column)


ALLOWED: dict[str, tuple[Callable[[DataFrame], DataFrame], list[Any]]] = {
    "columns": (lambda events: emitted(events.withColumn("n", col("count") + 1), "n"), [["2"], ["3"]]),
    "select": (
        lambda events: events.select("_source", emit(output("x", key="id", value=quoted("id"))).alias("outputs")),
        [["a"], ["b"]],
    ),
    "python function": (
        lambda events: emitted(events.withColumn("n", doubled("count", "python")), "n"),
        [["2"], ["4"]],
    ),
    "arrow function": (lambda events: emitted(events.withColumn("n", doubled("count", "arrow")), "n"), [["2"], ["4"]]),
    "pandas function": (
        lambda events: emitted(events.withColumn("n", doubled("count", "pandas")), "n"),
        [["2"], ["4"]],
    ),
    "left join with a broadcast table": (
        lambda events: emitted(events.join(broadcast(table().filter("id = 'b'")), "id", "left"), "name"),
        [[None], ["y"]],
    ),
    "left join by a condition": (
        lambda events: emitted(events.join(broadcast(table().select("name")), col("name") == "y", "left"), "name"),
        [["y"], ["y"]],
    ),
    "a single figure of a table": (
        lambda events: emitted(events.withColumn("most", table().agg(largest("name")).scalar()), "most"),
        [["y"], ["y"]],
    ),
    "chance": (lambda events: emitted(events.withColumn("n", (rand() < 2).cast("int")), "n"), [["1"], ["1"]]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_keeps_rows_is_allowed(run: Callable[[Callable[[DataFrame], Any]], list[Any]], name: str) -> None:
    transform, expected = ALLOWED[name]
    assert run(transform) == expected


MISTAKES: dict[str, tuple[type[PipelineError], str, Callable[[DataFrame], Any]]] = {
    "no outputs": (SafeStop, "transform: the column outputs is missing from its result", lambda events: events),
    "no source": (
        SafeStop,
        "transform: the column _source is missing from its result",
        lambda events: emitted(events).drop("_source"),
    ),
    "another source": (
        SafeStop,
        "transform: the column _source was changed",
        lambda events: emitted(events).withColumn("_source", struct(lit(1).alias("offset"))),
    ),
    "a source with another partition in it": (
        SafeStop,
        "transform: the column _source was changed",
        lambda events: emitted(events).withColumn("_source", col("_source").withField("partition", lit(2))),
    ),
    "outputs of another type": (
        SafeStop,
        "transform: the column outputs is string; make it with emit(...)",
        lambda events: events.withColumn("outputs", lit("x")),
    ),
    "outputs by hand": (
        SafeStop,
        "transform: the column outputs is array<struct<topic:string,key:string>>; make it with emit(...)",
        lambda events: events.withColumn("outputs", array(struct(lit("x").alias("topic"), lit("k").alias("key")))),
    ),
    "nothing returned": (SafeStop, "transform: it returned NoneType instead of a DataFrame", lambda _: None),
    "unknown column": (
        PipelineError,
        "transform: AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column",
        lambda events: emitted(events.withColumn("n", col("unknown"))),
    ),
    "its own error": (
        PipelineError,
        "transform: ZeroDivisionError: division by zero (test_plan.py, line ",
        lambda _: 1 / 0,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_transform_is_one_line(
    run: Callable[[Callable[[DataFrame], Any]], list[Any]], name: str
) -> None:
    kind, line, transform = MISTAKES[name]
    with pytest.raises(kind) as told:
        run(transform)
    assert str(told.value).startswith(line)
    assert "\n" not in str(told.value)
