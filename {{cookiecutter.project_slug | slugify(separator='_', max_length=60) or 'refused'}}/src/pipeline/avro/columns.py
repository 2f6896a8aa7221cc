"""Decoded values to Arrow columns, whole columns at a time, logical types included.

Guarantee: a value arrives to the last digit. One that its column cannot hold (a decimal with too many digits, a time
beyond the year 9999) is left out, and its row gets an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pipeline.avro.limits import SCHEMA_MISMATCH, told
from pipeline.avro.node import BadSchema, Node
from pipeline.avro.one import wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAT = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
TIMES = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
# The years 1 to 9999, in days and in microseconds: what Python, and so a user's function, can hold.
DAYS = (-719_162, 2_932_896)
MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
DECIMAL_BYTES = 16
# The member of a union by the Python type of what fastavro returns; a name goes with a named type.
NUMBERS = {"int": int, "long": int, "float": float, "double": float}
PYTHON: dict[str, type] = {**NUMBERS, "boolean": bool, "bytes": bytes, "string": str, "array": list, "map": dict}
NAMED_PYTHON: dict[str, type] = {"record": dict, "enum": str, "fixed": bytes}
NAMED = frozenset(NAMED_PYTHON)


def arrow_type(node: Node) -> pa.DataType:  # noqa: PLR0911  one for each kind
    """The column type of a schema's type; a type without one is refused with its field."""
    if node.recursive:
        msg = wrong(node, f"the type {node.name} contains itself; a column cannot")
        raise BadSchema(msg)
    if node.kind == "union":
        if not node.branches:
            msg = wrong(node, "a type that is always null has no column")
            raise BadSchema(msg)
        if node.only is not node:
            return arrow_type(node.only)
        return pa.struct([pa.field(name, arrow_type(member)) for name, member in members(node)])
    if node.kind == "record":
        return pa.struct(
            [pa.field(name, arrow_type(child)) for name, child in zip(node.names, node.children, strict=True)]
        )
    if node.kind == "array":
        return pa.list_(arrow_type(node.children[0]))
    if node.kind == "map":
        return pa.map_(pa.string(), arrow_type(node.children[0]))
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    found = TIMES.get(node.logical) or FLAT.get(node.kind)
    if found is None:
        msg = wrong(node, "a type that is always null has no column")
        raise BadSchema(msg)
    return found


def members(node: Node) -> list[tuple[str, Node]]:
    """The branches of a union of several types, as the fields of a struct: one of them is not null.

    Two whole numbers share a member, and two fractions do: what is read does not tell them apart.
    """
    found: dict[Any, Node] = {}
    for branch in node.branches:
        key = branch.name if branch.kind in NAMED else NUMBERS.get(branch.kind, branch.kind)
        other = found.setdefault(key, branch)
        if other.logical != branch.logical:
            msg = wrong(node, f"a union of {other.kind} and {branch.kind} with another logical type has no column")
            raise BadSchema(msg)
        if branch.kind in {"long", "double"}:
            found[key] = branch
    return [(f"member{place}", branch) for place, branch in enumerate(found.values())]


class Columns:
    """Makes columns of decoded records, and notes in `errors` the rows that do not fit."""

    def __init__(self, errors: list[str | None]) -> None:
        """`errors` has an entry for each row; the first one found for a row stands."""
        self._errors = errors

    def record(self, node: Node, values: Sequence[dict[str, Any] | None], rows: Any = None) -> list[pa.Array]:
        """The columns of a record; None where a row has no value."""
        held = [value is not None for value in values]
        whole = all(held)
        return [
            self._column(
                child,
                [value[name] for value in values]  # type: ignore[index]  # none is None
                if whole
                else [None if value is None else value[name] for value in values],
                rows,
            )
            for name, child in zip(node.names, node.children, strict=True)
        ]

    def _column(self, node: Node, values: list[Any], rows: Any) -> pa.Array:
        """One column; `rows` says to which row each value belongs, if they are not one to one."""
        node = node.only
        if node.kind in NAMED:  # out of a union they come with their names
            values = [value[1] if type(value) is tuple else value for value in values]
        if node.kind == "record":
            mask = pa.array([value is None for value in values])
            return pa.StructArray.from_arrays(
                self.record(node, values, rows), fields=list(arrow_type(node)), mask=mask if None in values else None
            )
        if node.kind == "union":
            return self._union(node, values, rows)
        if node.kind in {"array", "map"}:
            return self._nested(node, values, rows)
        if node.logical == "decimal":
            return self._decimal(node, values, rows)
        if node.logical in TIMES:
            return self._time(node, values, rows)
        return pa.array(values, FLAT[node.kind])

    def _union(self, node: Node, values: list[Any], rows: Any) -> pa.Array:
        """One member of each value is not null. A writer that has no union sends a named type without its name."""
        parts, matched = [], np.fromiter((value is None for value in values), np.int64, len(values))
        bare = {PYTHON[member.kind] for _, member in members(node) if member.kind in PYTHON}
        for _, member in members(node):
            if member.kind in NAMED:
                kind = NAMED_PYTHON[member.kind]
                alone = kind not in bare and sum(NAMED_PYTHON.get(one.kind) is kind for _, one in members(node)) == 1
                taken = [_named(item, member.name, kind if alone else None) for item in values]
            else:
                kind = PYTHON[member.kind]
                taken = [item if type(item) is kind else None for item in values]
            matched += np.fromiter((item is not None for item in taken), np.int64, len(taken))
            parts.append(self._column(member, taken, rows))
        self._note(matched != 1, rows, told(SCHEMA_MISMATCH, wrong(node, "a value of none of its types")))
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type(node)), mask=mask if None in values else None)

    def _nested(self, node: Node, values: list[Any], rows: Any) -> pa.Array:
        lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int32, len(values))
        owners = np.repeat(np.arange(len(values)) if rows is None else rows, lengths)
        offsets = pa.array(np.concatenate(([0], lengths.cumsum())), pa.int32(), mask=_mask([*values, 0]))
        if node.kind == "array":
            items = [item for value in values if value is not None for item in value]
            return pa.ListArray.from_arrays(offsets, self._column(node.children[0], items, owners))
        keys = [key for value in values if value is not None for key in value]
        items = [item for value in values if value is not None for item in value.values()]
        return pa.MapArray.from_arrays(
            offsets, pa.array(keys, pa.string()), self._column(node.children[0], items, owners)
        )

    def _time(self, node: Node, values: list[Any], rows: Any) -> pa.Array:
        kind = TIMES[node.logical]
        mask = _mask(values)
        numbers = np.array(
            [0 if value is None else value for value in values] if mask is not None else values, np.int64
        )
        low, high = DAYS if node.logical == "date" else MICROS
        factor = 1_000 if node.logical.endswith("millis") else 1
        bad = (numbers < low // factor) | (numbers > high // factor)
        if bad.any():
            self._note(bad, rows, wrong(node, "a time beyond the years 1 to 9999"))
            numbers[bad] = 0
        if node.logical == "date":
            return pa.array(numbers.astype(np.int32), pa.int32(), mask=mask).view(kind)
        return pa.array(numbers * factor, pa.int64(), mask=mask).view(kind)

    def _decimal(self, node: Node, values: list[Any], rows: Any) -> pa.Array:
        mask = _mask(values)
        raw = values if mask is None else [b"\0" if value is None else value for value in values]
        low, high, bad = _words(raw)
        most = 10**node.precision
        # Both bounds as two words; a value lies outside if its high word does, or is equal and its low word does.
        (top_low, top), (bottom_low, bottom) = (_split(most - 1), _split(1 - most))
        bad |= (high > top) | ((high == top) & (low > np.uint64(top_low)))
        bad |= (high < bottom) | ((high == bottom) & (low < np.uint64(bottom_low)))
        if bad.any():
            self._note(bad, rows, wrong(node, f"a decimal of more than {node.precision} digits"))
            low[bad] = high[bad] = 0
        both = np.column_stack((low, high.view(np.uint64)))
        valid = None if mask is None else pa.array(~mask).buffers()[1]
        kind = pa.decimal128(node.precision, node.scale)
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(both)])

    def _note(self, bad: Any, rows: Any, error: str) -> None:
        for place in np.flatnonzero(bad).tolist():
            row = place if rows is None else int(rows[place])
            self._errors[row] = self._errors[row] or error


def _named(item: Any, name: str, kind: type | None) -> Any:
    """What belongs to a named member: what comes with its name, or without one, if no other member could mean it."""
    if type(item) is tuple:
        return item[1] if item[0] == name else None
    return item if kind is not None and type(item) is kind else None


def _mask(values: Sequence[Any]) -> Any:
    """Where a value is None, or nothing if none is."""
    return np.fromiter((value is None for value in values), bool, len(values)) if None in values else None


def _words(raw: list[bytes]) -> tuple[Any, Any, Any]:
    """Big-endian numbers of up to 16 bytes as low and high words; longer ones are bad."""
    count = len(raw)
    data = np.frombuffer(b"".join(raw) + b"\0", np.uint8)
    lengths = np.fromiter(map(len, raw), np.int64, count)
    ends = lengths.cumsum()
    bad = (lengths > DECIMAL_BYTES) | (lengths == 0)
    negative = data[np.where(bad, 0, ends - lengths)] >= 0x80  # noqa: PLR2004  the sign bit
    out = np.where(negative[:, None], np.uint8(0xFF), np.uint8(0)).repeat(DECIMAL_BYTES, axis=1)
    for place in range(int(min(lengths.max(initial=0), DECIMAL_BYTES))):
        at = lengths > place
        out[at, place] = data[ends[at] - 1 - place]
    words = np.ascontiguousarray(out).view("<u8").reshape(count, 2)
    low, high = words[:, 0].copy(), words[:, 1].copy().view(np.int64)
    low[bad] = high[bad] = 0
    return low, high, bad


def _split(number: int) -> tuple[int, int]:
    data = number.to_bytes(DECIMAL_BYTES, "little", signed=True)
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little", signed=True)
