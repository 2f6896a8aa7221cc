"""Rows one by one, as tests like to write them down; the product has them only in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.lanes.rows import COLUMNS, Rows, rows_of
from pipeline.sections import Identity

if TYPE_CHECKING:
    from pipeline.lanes.transaction import Sendable

# offset, timestamp, producer_id, producer_epoch, txn_id, seq, repeated, digest, error, outputs
Row = tuple[
    int,
    int,
    bytes | None,
    bytes | None,
    bytes | None,
    bytes | None,
    bool,
    int,
    str | None,
    "list[Sendable]",
]

NAMES = ("producer-id", "producer-epoch", "txn-id", "seq")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OUTPUT = pa.struct([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("headers", HEADERS),
        ("digest", pa.int64()),
        ("error", pa.string()),
        ("outputs", pa.list_(OUTPUT)),
    ]
)


def arrow(rows: list[Row], partition: int = 0) -> pa.RecordBatch:
    """Return rows as they come from Spark."""
    whole = [(partition, *row[:2], _stamp(row), *row[7:-1], [output(*item) for item in row[-1]]) for row in rows]
    return pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in whole], SCHEMA)


def columnar(rows: list[Row]) -> Rows:
    """Return rows as the product has them."""
    return rows_of(arrow(rows), Identity())


def output(topic: str, key: bytes | None, value: bytes | None, headers: Any) -> dict[str, Any]:
    """Return an output as it comes from Spark."""
    listed = None if headers is None else [{"key": name, "value": content} for name, content in headers]
    return {"topic": topic, "key": key, "value": value, "headers": listed}


def _stamp(row: Row) -> list[dict[str, Any]] | None:
    """Return a row's identity headers among others; a repeated one comes twice with the same value."""
    named = [
        ("other", b"x"),
        *((name, value) for name, value in zip(NAMES, row[2:6], strict=True) if value is not None),
    ]
    listed: list[dict[str, Any]] = [{"key": name, "value": value} for name, value in named]
    if row[6]:
        listed += [{"key": "seq", "value": row[5]}] * (2 if row[5] is None else 1)
    return listed if len(listed) > 1 else None
