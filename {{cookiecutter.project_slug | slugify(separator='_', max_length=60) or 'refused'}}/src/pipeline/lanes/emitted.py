"""What rows emit, flat: the records to be sent of many rows side by side, and which of them are whose.

Guarantee: a row's outputs stay together and in order; a row that has none was dropped on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from pipeline.lanes.encoded import by_row, encode_into
from pipeline.lanes.sizes import RECORD_BYTES, headers_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pipeline.lanes.encoded import OutputSchema
    from pipeline.lanes.transaction import Headers, Sendable


@dataclass(frozen=True, slots=True)
class Emitted:
    """Outputs of rows; `ends` says where those of each row end, `sizes` how many bytes each takes at most."""

    outputs: list[Sendable]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many outputs each row has."""
        return np.diff(self.ends, prepend=0)

    def of(self, row: int) -> list[Sendable]:
        """The outputs of one row."""
        return self.outputs[self.ends[row - 1] if row else 0 : self.ends[row]]

    def by_row(self) -> list[list[Sendable]]:
        """The outputs of each row."""
        bounds = self.ends.tolist()
        return [self.outputs[start:end] for start, end in zip([0, *bounds], bounds, strict=False)]

    def only(self, rows: NDArray[np.bool_]) -> list[Sendable]:
        """The outputs of these rows alone."""
        return self.outputs if rows.all() else list(compress(self.outputs, np.repeat(rows, self.counts).tolist()))

    def with_more_than(self, size: int) -> list[int]:
        """Rows of which an output may take more bytes than this."""
        large = np.flatnonzero(self.sizes > size)
        rows: list[int] = np.unique(np.searchsorted(self.ends, large, side="right")).tolist()
        return rows

    def cut(self, start: int, end: int) -> Emitted:
        """Those of the rows from `start` to `end`."""
        first = int(self.ends[start - 1]) if start else 0
        last = int(self.ends[end - 1]) if end else 0
        return Emitted(self.outputs[first:last], self.ends[start:end] - first, self.sizes[first:last])


def emitted(column: Any, schemas: Mapping[str, OutputSchema] | None = None) -> tuple[Emitted, dict[int, str]]:
    """The outputs in a column of lists of them; and why the outputs of a row do not fit their schemas."""
    lengths = column.value_lengths().fill_null(0).to_numpy()
    flat = column.flatten()
    if flat.null_count:  # outputs whose condition did not hold
        held = flat.is_valid()
        lengths = np.bincount(
            np.repeat(np.arange(len(column)), lengths)[held.to_numpy(zero_copy_only=False)], minlength=len(column)
        )
        flat = flat.filter(held)
    topics, keys, values, headers, *records = flat.flatten()
    contents = flat_values(values)
    ends = lengths.cumsum(dtype=np.int64)
    wrong: dict[int, str] = {}
    for column_of_records in records:
        wrong = by_row(encode_into(contents, column_of_records, schemas or {}), ends)
    stamped = _headers(headers)
    value_sizes = np.fromiter((len(value or b"") for value in contents), np.int64) if records else _lengths(values)
    sizes = _lengths(keys) + value_sizes + RECORD_BYTES
    if any(stamped):
        sizes += np.fromiter(map(headers_size, stamped), np.int64, len(flat))
    outputs: list[Sendable] = list(zip(_topics(topics), flat_values(keys), contents, stamped, strict=True))
    return Emitted(outputs, ends, sizes), wrong


def flat_values(column: Any) -> list[Any]:
    """Python values of a flat column; numpy's way is many times faster than Arrow's `to_pylist`."""
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _topics(column: Any) -> list[str]:
    """Each output's topic; the same text is the same object, which spares the client work."""
    if column.null_count:  # no topic at all is refused later, by name
        return flat_values(column)
    found = column.dictionary_encode()
    names = found.dictionary.to_pylist()
    return names * len(column) if len(names) == 1 else [names[code] for code in found.indices.to_pylist()]


def _lengths(column: Any) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _headers(column: Any) -> list[Headers | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    return [None if items is None else [(item["key"], item["value"]) for item in items] for items in column.to_pylist()]
