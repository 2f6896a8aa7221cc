"""Arrow batches from Spark to the plain rows that the lane writer judges and sends.

Guarantee: every row belongs to the lane and range its task was given, each source offset comes once, and offsets
rise. A row that breaks this means the user's function moved or multiplied rows, and stops the job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.avro.limits import STOP, read
from pipeline.errors import RegistryAway, SafeStop
from pipeline.lanes.encoded import by_row, encode_into
from pipeline.lanes.stamps import stamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.lanes.encoded import OutputSchema
    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Identity

# Output values of a chunk: fifty thousand of a megabyte each would be more than any worker has.
CHUNK_BYTES = 64 * 1024 * 1024
# Columns of the frame that reaches the writer, in this order.
COLUMNS = (
    "partition",
    "offset",
    "timestamp",
    "headers",
    "digest",
    "error",
    "outputs",
)

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


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a lane's range that is committed by one transaction; it may hold no rows at all."""

    first: int
    until: int
    rows: list[Row]


def chunks(
    batches: Iterable[list[Row]], first: int, until: int, *, max_rows: int, max_seconds: float
) -> Iterator[Chunk]:
    """Cut a range by rows, bytes and seconds; the last chunk reaches its end, so that lag reaches 0."""
    rows: list[Row] = []
    started, size = time.monotonic(), 0
    for batch in batches:
        rows.extend(batch)
        size += sum(len(value) for row in batch for _, _, value, _ in row[-1] if value)
        while len(rows) > max_rows or (rows and (size > CHUNK_BYTES or time.monotonic() - started > max_seconds)):
            taken, rows = rows[:max_rows], rows[max_rows:]
            yield Chunk(first, taken[-1][0] + 1, taken)
            first = taken[-1][0] + 1
            started, size = time.monotonic(), 0
    if first < until:
        yield Chunk(first, until, rows)


def lane_rows(  # noqa: PLR0913, PLR0917  the lane, its range, and how its rows are read
    batches: Iterable[Any],
    partition: int,
    first: int,
    until: int,
    names: Identity,
    schemas: Mapping[str, OutputSchema] | None = None,
) -> Iterator[list[Row]]:
    """Turn record batches into checked rows; `names` are those of the identity headers, `schemas` those of outputs."""
    last = first - 1
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = _rows(batch, names, schemas or {})
        last = _check(rows, batch.column(COLUMNS.index("partition")), partition, last, until)
        yield rows


def _rows(batch: Any, names: Identity, schemas: Mapping[str, OutputSchema]) -> list[Row]:
    _, offset, timestamp, headers, digest, error, outputs = batch.columns
    errors = _values(error)
    stop_if_told(errors)
    made, wrong = outputs_of(outputs, schemas)
    for row, why in wrong.items():
        errors[row] = errors[row] or why
    return list(
        zip(
            _values(offset),
            _values(timestamp),
            *stamps(headers, names),
            _values(digest),
            errors,
            made,
            strict=True,
        )
    )


def stop_if_told(errors: list[str | None]) -> None:
    """The codec could not judge a row, and cannot stop a job itself: Spark would only repeat its exception."""
    for error in errors:
        if error is not None and error.startswith(f"{STOP}: "):
            raise RegistryAway(read(error)[1])


def _values(column: Any) -> list[Any]:
    """Python values of a flat column; numpy's way is many times faster than Arrow's `to_pylist`."""
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def outputs_of(
    column: Any, schemas: Mapping[str, OutputSchema] | None = None
) -> tuple[list[list[Sendable]], dict[int, str]]:
    """Each row's outputs, none for a record that was dropped on purpose; and why a row's outputs do not fit."""
    lengths = column.value_lengths().fill_null(0).to_numpy()
    flat = column.flatten()
    if flat.null_count:  # outputs whose condition did not hold
        held = flat.is_valid()
        lengths = np.bincount(
            np.repeat(np.arange(len(column)), lengths)[held.to_numpy(zero_copy_only=False)], minlength=len(column)
        )
        flat = flat.filter(held)
    topics, keys, values, headers, *records = flat.flatten()
    contents = _values(values)
    ends = lengths.cumsum()
    wrong: dict[int, str] = {}
    for column_of_records in records:
        wrong = by_row(encode_into(contents, column_of_records, schemas or {}), ends)
    sendables: list[Sendable] = list(
        zip(
            _values(topics),
            _values(keys),
            contents,
            [None] * len(flat) if headers.null_count == len(flat) else [_headers(item) for item in headers.to_pylist()],
            strict=True,
        )
    )
    bounds = ends.tolist()
    return [sendables[start:end] for start, end in zip([0, *bounds], bounds, strict=False)], wrong


def _headers(items: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if items is None else [(item["key"], item["value"]) for item in items]


def _check(rows: list[Row], partitions: Any, partition: int, last: int, until: int) -> int:
    foreign = set(partitions.unique().to_pylist()) - {partition}
    if foreign:
        msg = f"rows of partition {sorted(foreign)} reached lane {partition}: transform must keep rows where they are"
        raise SafeStop(msg)
    for row in rows:
        offset = row[0]
        if offset <= last:
            verb = "multiplied" if offset == last else "reordered"
            msg = (
                f"partition {partition}, offset {offset} after {last}: the user's function {verb} rows; "
                f"it must return each row once and in order, with all its outputs in the column `outputs`"
            )
            raise SafeStop(msg)
        last = offset
    if last >= until:
        msg = f"partition {partition}: offset {last} lies beyond the batch's end {until}"
        raise SafeStop(msg)
    return last
