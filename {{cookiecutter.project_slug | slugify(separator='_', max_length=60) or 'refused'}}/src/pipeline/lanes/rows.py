"""Arrow batches from Spark to the rows that the lane writer judges and sends: in columns, not one by one.

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
from pipeline.lanes.emitted import Emitted, emitted
from pipeline.lanes.stamps import Stamps, stamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from pipeline.lanes.encoded import OutputSchema
    from pipeline.sections import Identity

# Outputs of a chunk: fifty thousand of a megabyte each would be more than any worker has.
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


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one lane in the order of their offsets; `errors` holds why some of them were not decoded."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    stamps: Stamps
    digests: NDArray[np.int64]
    errors: dict[int, str]
    emitted: Emitted

    def __len__(self) -> int:
        """How many rows."""
        return len(self.offsets)

    @property
    def size(self) -> int:
        """How many bytes its outputs take at most."""
        return int(self.emitted.sizes.sum())

    def cut(self, start: int, end: int) -> Rows:
        """The rows from `start` to `end`."""
        if start <= 0 and end >= len(self):
            return self
        return Rows(
            self.offsets[start:end],
            self.timestamps[start:end],
            self.stamps.cut(start, end),
            self.digests[start:end],
            {row - start: error for row, error in self.errors.items() if start <= row < end},
            self.emitted.cut(start, end),
        )

    def since(self, offset: int) -> Rows:
        """The rows from a source offset on."""
        return self.cut(int(np.searchsorted(self.offsets, offset)), len(self))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a lane's range that is committed by one transaction; it may hold no rows at all."""

    first: int
    until: int
    parts: list[Rows]

    def __len__(self) -> int:
        """How many rows."""
        return sum(map(len, self.parts))


def chunks(batches: Iterable[Rows], first: int, until: int, *, max_rows: int, max_seconds: float) -> Iterator[Chunk]:
    """Cut a range by rows, bytes and seconds; the last chunk reaches its end, so that lag reaches 0."""
    parts: list[Rows] = []
    started, count, size = time.monotonic(), 0, 0
    for batch in batches:
        parts.append(batch)
        count += len(batch)
        size += batch.size
        while count > max_rows or (count and (size > CHUNK_BYTES or time.monotonic() - started > max_seconds)):
            taken, parts = _taken(parts, max_rows)
            end = int(taken[-1].offsets[-1]) + 1
            yield Chunk(first, end, taken)
            first = end
            started, count, size = time.monotonic(), sum(map(len, parts)), 0
    if first < until:
        yield Chunk(first, until, parts)


def _taken(parts: list[Rows], count: int) -> tuple[list[Rows], list[Rows]]:
    """The first rows of all parts, `count` at most, and the rest."""
    taken, rest = [], []
    for part in parts:
        if count:
            taken.append(part.cut(0, count))
        if count < len(part):
            rest.append(part.cut(count, len(part)))
        count = max(count - len(part), 0)
    return taken, rest


def lane_rows(  # noqa: PLR0913, PLR0917  the lane, its range, and how its rows are read
    batches: Iterable[Any],
    partition: int,
    first: int,
    until: int,
    names: Identity,
    schemas: Mapping[str, OutputSchema] | None = None,
) -> Iterator[Rows]:
    """Turn record batches into checked rows; `names` are those of the identity headers, `schemas` those of outputs."""
    last = first - 1
    for batch in batches:
        if batch.num_rows == 0:
            continue
        rows = rows_of(batch, names, schemas)
        last = _check(rows.offsets, batch.column(COLUMNS.index("partition")), partition, last, until)
        yield rows


def rows_of(batch: Any, names: Identity, schemas: Mapping[str, OutputSchema] | None = None) -> Rows:
    """One record batch as rows, unchecked."""
    _, offset, timestamp, headers, digest, error, outputs = batch.columns
    errors = errors_of(error)
    made, wrong = emitted(outputs, schemas)
    return Rows(
        offset.to_numpy(), timestamp.to_numpy(), stamps(headers, names), digest.to_numpy(), {**wrong, **errors}, made
    )


def errors_of(column: Any) -> dict[int, str]:
    """Why values were not decoded, by row. The codec cannot stop a job itself: Spark would repeat its exception."""
    if column.null_count == len(column):
        return {}
    errors = {row: error for row, error in enumerate(column.to_pylist()) if error is not None}
    for error in errors.values():
        if error.startswith(f"{STOP}: "):
            raise RegistryAway(read(error)[1])
    return errors


def _check(offsets: NDArray[np.int64], partitions: Any, partition: int, last: int, until: int) -> int:
    foreign = set(partitions.unique().to_pylist()) - {partition}
    if foreign:
        msg = f"rows of partition {sorted(foreign)} reached lane {partition}: transform must keep rows where they are"
        raise SafeStop(msg)
    falls = np.flatnonzero(np.diff(offsets, prepend=last) <= 0)
    if len(falls):
        row = int(falls[0])
        offset, before = int(offsets[row]), int(offsets[row - 1]) if row else last
        verb = "multiplied" if offset == before else "reordered"
        msg = (
            f"partition {partition}, offset {offset} after {before}: the user's function {verb} rows; "
            f"it must return each row once and in order, with all its outputs in the column `outputs`"
        )
        raise SafeStop(msg)
    end = int(offsets[-1])
    if end >= until:
        msg = f"partition {partition}: offset {end} lies beyond the batch's end {until}"
        raise SafeStop(msg)
    return end
