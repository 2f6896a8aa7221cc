"""Codec and transform in tests: source values in, outputs or errors out, on a local Spark and without Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.flow.codec import decode
from pipeline.flow.job import RAW_SCHEMA
from pipeline.flow.plan import check_plan
from pipeline.flow.source import records
from pipeline.flow.usercode import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Written(NamedTuple):
    """One output record."""

    topic: str
    key: str | None
    value: Any  # decoded from JSON; a null is none
    headers: dict[str, bytes]


def raw_of(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """Return source records as Spark's Kafka source delivers them, with these values."""
    rows: list[tuple[Any, ...]] = [
        (b"key", value, "source", 0, offset, None, 0, []) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW_SCHEMA)


def decoded(spark: SparkSession, schema: StructType, values: Sequence[bytes | None]) -> list[Any]:
    """Return the decoded rows; `row._source.error` is null where a value is sound."""
    return list(decode(records(raw_of(spark, values)), schema).collect())


def written(
    spark: SparkSession, schema: StructType, transform: Callable[[DataFrame], DataFrame], values: Sequence[bytes | None]
) -> list[list[Written]]:
    """Return each value's outputs, after the same checks as in a job."""
    raw = raw_of(spark, values)
    rows = apply(transform, decode(records(raw), schema))
    check_plan(rows, raw, writer=False)
    return [[_written(output) for output in row["outputs"] if output is not None] for row in rows.collect()]


def _written(output: Any) -> Written:
    key = None if output["key"] is None else bytes(output["key"]).decode()
    value = None if output["value"] is None else json.loads(bytes(output["value"]))
    headers = {header["key"]: bytes(header["value"]) for header in output["headers"] or ()}
    return Written(output["topic"], key, value, headers)
