"""The helpers by which a transform says what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import array, col, lit
from tests.support.spark import Written, columns, written

from pipeline.flow.outputs import OUTPUTS_TYPE, emit, output
from pipeline.lanes.joined import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, SparkSession

SCHEMA = columns(id="string", count="int")


@pytest.fixture
def write(spark: SparkSession) -> Callable[[Column], list[list[Written]]]:
    """Return what is written for the counts 1, 2 and none."""
    values = [b'{"id":"a","count":1}', b'{"id":"b","count":2}', b'{"id":"c"}']
    return lambda outputs: written(spark, SCHEMA, lambda events: events.withColumn("outputs", outputs), values)


def test_outputs_come_in_the_order_given_each_under_its_own_condition(
    write: Callable[[Column], list[list[Written]]],
) -> None:
    first = output("x", key="id", value=lit("1"))
    second = output("y", key=None, value=lit("2")).when(col("count") > 0)
    third = output("x", key="id", value=lit("3")).when(col("count") > 0).when(col("count") > 1)
    found = [[(item.topic, item.key, item.value) for item in items] for items in write(emit(first, second, third))]
    assert found == [
        [("x", "a", 1), ("y", None, 2)],
        [("x", "b", 1), ("y", None, 2), ("x", "b", 3)],
        [("x", "c", 1)],
    ], "a condition that is null holds no more than a false one"


def test_headers_are_columns_or_their_names(write: Callable[[Column], list[list[Written]]]) -> None:
    found = write(emit(output("x", key=None, value=lit("1"), headers={"from": "id", "kind": lit("k")})))
    assert [items[0].headers for items in found] == [{"from": name, "kind": b"k"} for name in (b"a", b"b", b"c")]


def test_no_output_at_all_drops_every_event(write: Callable[[Column], list[list[Written]]]) -> None:
    assert write(emit()) == [[], [], []]


def test_rows_without_any_output_cross_to_python_in_many_batches(spark: SparkSession) -> None:
    rows = spark.range(3_000, numPartitions=1).select(array().cast(OUTPUTS_TYPE).alias("outputs"))

    def counted(batches: Iterator[Any]) -> Iterator[Any]:
        found = [row for batch in joined(batches) for row in batch.to_pylist()]
        yield pa.record_batch([[len(found)], [sum(len(row["outputs"]) for row in found)]], names=["rows", "outputs"])

    [(found, outputs)] = rows.mapInArrow(counted, "rows long, outputs long").collect()
    assert (found, outputs) == (3_000, 0)
