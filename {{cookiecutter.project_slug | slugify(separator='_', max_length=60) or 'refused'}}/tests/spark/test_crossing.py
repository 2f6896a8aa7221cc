"""What Spark is told of one batch holds for that batch alone, and changes none of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import expr, pandas_udf, udf
from pyspark.sql.types import LongType, StructType

from pipeline.flow.crossing import CODE, FEW_ROWS, INTERPRETED, MANY_ROWS, ROWS, WRITTEN, as_it_comes, map_pieces, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SIZES = StructType().add("rows", LongType()).add("sum", LongType())
MANY = {ROWS: str(MANY_ROWS), CODE: INTERPRETED}


def sizes(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield how many rows each piece has, and the sum of its second column."""
    for batch in batches:
        total = sum(batch.column(1).to_pylist())
        yield pa.record_batch([pa.array([batch.num_rows]), pa.array([total])], names=["rows", "sum"])


def numbers(spark: SparkSession) -> DataFrame:
    """Return a thousand rows of two columns, in one task."""
    return spark.range(0, 1_000, 1, 1).selectExpr("-id as less", "id")


def pieces(spark: SparkSession) -> list[int]:
    """Return the sizes in which they cross."""
    found = map_pieces(numbers(spark), sizes, SIZES, ["less", "id"]).collect()
    assert sum(row["sum"] for row in found) == sum(range(1_000))
    return [row["rows"] for row in found]


def test_rows_cross_in_pieces_as_told_and_afterwards_as_before(spark: SparkSession) -> None:
    assert pieces(spark) == [FEW_ROWS] * 10
    with told(spark, MANY):
        assert pieces(spark) == [MANY_ROWS, MANY_ROWS, 200]
    assert pieces(spark) == [FEW_ROWS] * 10


def test_what_was_told_is_taken_back_also_after_a_failure(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), told(spark, MANY):
        _ = 1 / 0
    assert {name: spark.conf.get(name) for name in MANY} == as_it_comes()


def test_it_is_spark_s_own_map_in_arrow(spark: SparkSession) -> None:
    ours = map_pieces(numbers(spark), sizes, SIZES, ["less", "id"])
    theirs = numbers(spark).mapInArrow(sizes, "rows long, sum long")
    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()


def test_a_user_s_columns_are_the_same_by_code_that_is_written_and_without(spark: SparkSession) -> None:
    columns = [
        "id % 3 as third",
        "nullif(id % 7, 0) as hole",
        "cast(id as decimal(38, 10)) / 7 as share",
        "cast(id * 1.1 as decimal(10, 2)) as amount",
        "if(id % 5 = 0, double('nan'), if(id % 5 = 1, double('-0.0'), id / 3)) as odd",
        "timestamp_millis(id * 1000003) as at",
        "array(id, null, -id) as list",
        "map('a', id, 'b', null) as table",
        "named_struct('in', named_struct('id', nullif(id % 2, 0), 'text', repeat('ä', int(id % 9)))) as nested",
        "to_json(named_struct('id', id, 'hole', nullif(id % 3, 0))) as json",
        "binary(string(id)) as bytes",
    ]

    def found() -> list[Any]:
        rows = spark.range(0, 500, 1, 2).selectExpr("id", *columns)
        rows = rows.withColumn("plain", udf(lambda nested, amount: f"{nested} {amount}")("nested", "amount"))
        rows = rows.withColumn("arrow", pandas_udf(lambda numbers: numbers * 2, "double")("odd"))
        return list(rows.withColumn("behind", expr("concat(plain, '-', string(arrow))")).collect())

    rows = {}
    for code in (WRITTEN, INTERPRETED):
        with told(spark, {CODE: code}):
            rows[code] = [repr(row) for row in found()]
    assert len(rows[WRITTEN]) == 500
    assert rows[INTERPRETED] == rows[WRITTEN]
