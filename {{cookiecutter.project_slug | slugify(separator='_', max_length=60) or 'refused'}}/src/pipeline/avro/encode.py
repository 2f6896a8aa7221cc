"""A column of structs to encoded values of a schema, through fastavro: one call for a whole batch.

Guarantee: what is encoded decodes to the same values, to the last digit. A row that the schema does not take (a null
in a required field, a symbol that the enum lacks) gets an error instead of a value; no other row is touched by it.
"""

from __future__ import annotations

import os
from io import BytesIO
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.avro.collector import paused
from pipeline.avro.columns import DECIMAL_BYTES, NAMED, TIMES, arrow_type, members
from pipeline.avro.decode import Reader
from pipeline.avro.limits import ENCODE, told
from pipeline.avro.node import bare
from pipeline.avro.one import wrong

if TYPE_CHECKING:
    from pipeline.avro.node import Node

MARK = "_mark"
MARK_BYTES = 16


class Encoder:
    """Encodes the rows of a struct column by one schema."""

    def __init__(self, schema: Any) -> None:
        """The schema must be a record whose every field has a column type."""
        self._node = Reader.of(schema).node
        plain = bare(schema)
        self._schema = fastavro.parse_schema(plain)
        # Behind each record stands a mark by which the written batch is cut into values again.
        mark = {"name": MARK, "type": {"type": "fixed", "name": MARK, "size": MARK_BYTES}}
        marked = {**plain, "fields": [*plain["fields"], mark]}
        self._marked = fastavro.parse_schema({"type": "array", "items": marked})

    def encode(self, column: Any) -> tuple[list[bytes | None], list[str | None]]:
        """The values of a column without nulls, None where there is an error, and the errors."""
        with paused():
            return self._encoded(column)

    def _encoded(self, column: Any) -> tuple[list[bytes | None], list[str | None]]:
        errors: list[str | None] = [None] * len(column)
        mark = os.urandom(MARK_BYTES)
        records = _Values(errors).marked(self._node, column, mark)
        if not any(errors):
            return self._written(records, list(range(len(records))), errors, mark), errors
        sound = [row for row, error in enumerate(errors) if error is None]
        values: list[bytes | None] = [None] * len(column)
        for row, value in zip(sound, self._written([records[row] for row in sound], sound, errors, mark), strict=True):
            values[row] = value
        return values, errors

    def _written(
        self, records: list[dict[str, Any]], rows: list[int], errors: list[str | None], mark: bytes
    ) -> list[Any]:
        stream = BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._marked, records)
            found = stream.getvalue().split(mark)
        except Exception:  # noqa: BLE001  whatever it is, it is found again below, at its own row
            found = []
        if len(found) != len(records) + 1:
            return [self._write_one(record, row, errors) for record, row in zip(records, rows, strict=True)]
        # Before the first value stands the head of the array's one block, and behind the last its end.
        return [found[0][len(_head(len(records))) :], *found[1:-1]] if records else []

    def _write_one(self, record: dict[str, Any], row: int, errors: list[str | None]) -> bytes | None:
        stream = BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._schema, record)
        except Exception as error:  # noqa: BLE001  it is the reason, not a failure
            errors[row] = told(ENCODE, f"{type(error).__name__}: {error}")
            return None
        return stream.getvalue()


def _head(count: int) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, "long", count)
    return stream.getvalue()


class _Values:
    """Makes Python values of a column for fastavro, and notes in `errors` the rows that do not fit."""

    def __init__(self, errors: list[str | None]) -> None:
        self._errors = errors

    def marked(self, node: Node, column: Any, mark: bytes) -> list[dict[str, Any]]:
        """The records of a column without nulls, each with the mark behind its fields."""
        rows = np.arange(len(column))
        parts = zip(node.names, node.children, strict=True)
        columns = [self.column(child, pc.struct_field(column, name), rows) for name, child in parts]
        names = (*node.names, MARK)
        if len(columns) == 0:
            return [{MARK: mark} for _ in rows]
        # All are of one length; to have that checked again costs a tenth of the encoding.
        return [dict(zip(names, row, strict=False)) for row in zip(*columns, repeat(mark), strict=False)]

    def column(self, node: Node, column: Any, rows: Any) -> list[Any]:
        """The values of a column; `rows` says to which row each belongs."""
        self._check_nulls(node, column, rows)
        node = node.only
        if node.kind == "record":
            return self._record(node, column, rows)
        if node.kind == "union":
            return self._union(node, column, rows)
        if node.kind in {"array", "map"}:
            return self._nested(node, column, rows)
        column = column.cast(arrow_type(node))
        if node.logical == "decimal":
            return _decimals(column, node.size)
        if node.logical in TIMES:
            return self._times(node, column, rows)
        values = plain(column)
        if node.kind == "enum":
            known = frozenset(node.symbols)
            self._note([value is not None and value not in known for value in values], rows, node, "not in the enum")
        elif node.kind == "fixed":
            sizes = [value is not None and len(value) != node.size for value in values]
            self._note(sizes, rows, node, f"not {node.size} bytes long")
        return values

    def _check_nulls(self, node: Node, column: Any, rows: Any) -> None:
        if column.null_count and not node.nullable:
            self._note(column.is_null().to_pylist(), rows, node, "null, but the schema requires it")

    def _record(self, node: Node, column: Any, rows: Any) -> list[Any]:
        held = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        if held is not None:
            column, rows = column.filter(pa.array(held)), rows[held]
        parts = [
            self.column(child, column.field(name) if column.offset == 0 else pc.struct_field(column, name), rows)
            for name, child in zip(node.names, node.children, strict=True)
        ]
        names = node.names
        records: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        return records if held is None else _spread(records, held)

    def _union(self, node: Node, column: Any, rows: Any) -> list[Any]:
        values: list[Any] = [None] * len(column)
        filled = np.zeros(len(column), np.int64)
        for name, member in members(node):
            part = pc.struct_field(column, name)
            held = part.is_valid().to_numpy(zero_copy_only=False)
            filled += held
            found = self.column(member, part.filter(pa.array(held)), rows[held])
            tag = member.name if member.kind in NAMED else member.kind
            for place, value in zip(np.flatnonzero(held).tolist(), found, strict=True):
                # The tag tells fastavro the branch; it would try one after the other.
                values[place] = (tag, value)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        self._note((filled != 1) & there, rows, node, "a union needs exactly one member that is not null")
        return values

    def _nested(self, node: Node, column: Any, rows: Any) -> list[Any]:
        held = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        if held is not None:
            column, rows = column.filter(pa.array(held)), rows[held]
        offsets = column.offsets.to_numpy()
        lengths = np.diff(offsets)
        owners = np.repeat(rows, lengths)
        first, until = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        ends = (offsets - first).tolist()
        child = node.children[0]
        if node.kind == "array":
            items = self.column(child, column.values.slice(first, until - first), owners)
            found: list[Any] = [items[start:end] for start, end in pairwise(ends)]
        else:
            keys = plain(column.keys.slice(first, until - first))
            items = self.column(child, column.items.slice(first, until - first), owners)
            pairs = list(zip(keys, items, strict=True))
            found = [dict(pairs[start:end]) for start, end in pairwise(ends)]
        return found if held is None else _spread(found, held)

    def _times(self, node: Node, column: Any, rows: Any) -> list[Any]:
        if node.logical == "date":
            return plain(column.view(pa.int32()))
        numbers = column.view(pa.int64())
        if node.logical.endswith("millis"):
            whole = pc.divide(numbers, 1_000)
            exact = pc.equal(pc.multiply(whole, 1_000), numbers)
            lost = pc.invert(exact).fill_null(False).to_pylist()  # noqa: FBT003  Arrow's own
            self._note(lost, rows, node, "finer than milliseconds: truncate it, or write timestamp-micros")
            numbers = whole
        return plain(numbers)

    def _note(self, bad: Any, rows: Any, node: Node, what: str) -> None:
        for place in np.flatnonzero(np.asarray(bad, bool)).tolist():
            row = int(rows[place])
            self._errors[row] = self._errors[row] or told(ENCODE, wrong(node, what))


def _spread(values: list[Any], held: Any) -> list[Any]:
    """Put values back among the nulls."""
    found: list[Any] = [None] * len(held)
    for place, value in zip(np.flatnonzero(held).tolist(), values, strict=True):
        found[place] = value
    return found


def plain(column: Any) -> list[Any]:
    """Python values of a flat column; numpy's way is many times faster than Arrow's, but knows no null numbers."""
    values: list[Any] = column.to_pylist() if column.null_count else column.to_numpy(zero_copy_only=False).tolist()
    return values


def _decimals(column: Any, size: int) -> list[Any]:
    """Big-endian numbers as Avro holds them: as short as may be, or of the size of a fixed type."""
    raw = memoryview(column.buffers()[1])[column.offset * DECIMAL_BYTES :] if len(column) else memoryview(b"")
    numbers = [
        int.from_bytes(raw[start : start + DECIMAL_BYTES], "little", signed=True)
        for start in range(0, len(column) * DECIMAL_BYTES, DECIMAL_BYTES)
    ]
    found: list[Any] = [
        number.to_bytes(size or (number + (number < 0)).bit_length() // 8 + 1, "big", signed=True) for number in numbers
    ]
    if column.null_count:
        valid = column.is_valid().to_pylist()
        found = [value if held else None for value, held in zip(found, valid, strict=True)]
    return found
