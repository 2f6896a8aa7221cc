"""Small helpers with which a transform says what it writes.

Guarantee: whatever a row emits stays on its row, so a record's outputs can never be torn from its offset.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.functions import array, col, lit, struct, to_json, when

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
FIELDS_TYPE = f"topic:string,key:binary,value:binary,headers:{HEADERS_TYPE}"
OUTPUTS_TYPE = f"array<struct<{FIELDS_TYPE}>>"
# Behind these, where records are still to be encoded by schemas: one field for each of them, "<place>:<topic>".
RECORDS = "records"
JSON_OPTIONS = {"timeZone": "UTC"}

_FORMAT: ContextVar[str] = ContextVar("format", default="")


@contextmanager
def encoded_as(form: str) -> Iterator[None]:
    """What becomes of a `record(...)` in outputs that are described meanwhile: "json" or "avro"."""
    token = _FORMAT.set(form)
    try:
        yield
    finally:
        _FORMAT.reset(token)


@dataclass(frozen=True)
class Record:
    """Columns that become one value, in the output format of the settings."""

    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Output:
    """One record to be written, perhaps under a condition."""

    topic: str
    key: Column
    value: Column | Record
    headers: Column
    condition: Column | None = None

    def when(self, condition: Column) -> Output:
        """Write it only where the condition is true; false and null write nothing."""
        return replace(self, condition=condition if self.condition is None else self.condition & condition)

    def column(self, more: tuple[Column, ...] = ()) -> Column:
        """The record as a column; null where it is not written."""
        made = struct(
            lit(self.topic).alias("topic"),
            self.key.cast("binary").alias("key"),
            self._value().cast("binary").alias("value"),
            self.headers.alias("headers"),
            *more,
        )
        return made if self.condition is None else when(self.condition, made)

    def _value(self) -> Column:
        if not isinstance(self.value, Record):
            return self.value
        if not _FORMAT.get():
            msg = (
                "transform: a record(...) gets its format while the function runs; call emit(...) inside the transform"
            )
            raise SafeStop(msg)
        return lit(None) if _FORMAT.get() == "avro" else to_json(struct(*self.value.columns), JSON_OPTIONS)


def record(*columns: str | Column) -> Record:
    """A value of these columns: by the topic's schema if the output is Avro, an object of them if it is JSON."""
    return Record(tuple(_column(column) for column in columns))


def output(
    topic: str,
    *,
    key: str | Column | None,
    value: str | Column | Record | None,
    headers: Mapping[str, str | Column] | None = None,
) -> Output:
    """Describe a record of a topic; the value is a `record(...)`, or bytes of your own; `None` is a null."""
    items = [
        struct(lit(name).alias("key"), _column(header).cast("binary").alias("value"))
        for name, header in (headers or {}).items()
    ]
    made = value if isinstance(value, Record) else _column(value)
    return Output(topic, _column(key), made, (array(*items) if items else lit(None)).cast(HEADERS_TYPE))


def emit(*outputs: Output) -> Column:
    """The column `outputs` of a row, in the order given; an output whose condition does not hold is null in it."""
    if not outputs:
        return array().cast(OUTPUTS_TYPE)
    if _FORMAT.get() != "avro" or not any(isinstance(item.value, Record) for item in outputs):
        return array(*(item.column() for item in outputs))
    return array(*(item.column((_records(outputs, place),)) for place, item in enumerate(outputs)))


def _records(outputs: tuple[Output, ...], own: int) -> Column:
    """All outputs' records side by side, since the items of an array have one type; only the own one is not null."""
    parts = []
    for place, item in enumerate(outputs):
        if isinstance(item.value, Record):
            made = struct(*item.value.columns)
            typed = made if place == own else when(lit(False), made)  # noqa: FBT003  a literal of Spark's
            parts.append(typed.alias(f"{place}:{item.topic}"))
    return struct(*parts).alias(RECORDS)


def _column(value: str | Column | None) -> Column:
    if value is None:
        return lit(None)
    return col(value) if isinstance(value, str) else value
