"""Small helpers with which a transform says what it writes.

Guarantee: whatever a row emits stays on its row, so a record's outputs can never be torn from its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.functions import array, col, lit, struct, when

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
OUTPUTS_TYPE = f"array<struct<topic:string,key:binary,value:binary,headers:{HEADERS_TYPE}>>"


@dataclass(frozen=True)
class Output:
    """One record to be written, perhaps under a condition."""

    topic: str
    key: Column
    value: Column
    headers: Column
    condition: Column | None = None

    def when(self, condition: Column) -> Output:
        """Write it only where the condition is true; false and null write nothing."""
        return replace(self, condition=condition if self.condition is None else self.condition & condition)

    def column(self) -> Column:
        """The record as a column; null where it is not written."""
        record = struct(
            lit(self.topic).alias("topic"),
            self.key.cast("binary").alias("key"),
            self.value.cast("binary").alias("value"),
            self.headers.alias("headers"),
        )
        return record if self.condition is None else when(self.condition, record)


def output(
    topic: str,
    *,
    key: str | Column | None,
    value: str | Column | None,
    headers: Mapping[str, str | Column] | None = None,
) -> Output:
    """Describe a record of a topic; key and value are column names or columns, `None` is a null."""
    items = [
        struct(lit(name).alias("key"), _column(header).cast("binary").alias("value"))
        for name, header in (headers or {}).items()
    ]
    return Output(topic, _column(key), _column(value), (array(*items) if items else lit(None)).cast(HEADERS_TYPE))


def emit(*outputs: Output) -> Column:
    """The column `outputs` of a row, in the order given; an output whose condition does not hold is null in it."""
    return array(*(item.column() for item in outputs)) if outputs else array().cast(OUTPUTS_TYPE)


def _column(value: str | Column | None) -> Column:
    if value is None:
        return lit(None)
    return col(value) if isinstance(value, str) else value
