"""Avro schemas and values that follow them, made by hypothesis."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

LOGICAL: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary(max_size=20)),
    "string": ("string", st.text(max_size=20)),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 25, "scale": 5},
        st.integers(-(10**25) + 1, 10**25 - 1).map(lambda units: Decimal(units).scaleb(-5)),
    ),
    "date": ({"type": "int", "logicalType": "date"}, st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "timestamp-millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(  # noqa: DTZ001
            lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        ),
    ),
    "timestamp-micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
    ),
    "local-timestamp-micros": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
}
NAMES = ("a", "b", "c", "d")


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return a record of every kind of field, at most three levels deep; names of types are unique."""
    return _record(draw, iter(range(1_000)), 2)


def _record(draw: st.DrawFn, numbers: Any, depth: int) -> dict[str, Any]:
    names = NAMES[: draw(st.integers(1, 4))]
    fields = [{"name": name, "type": _type(draw, numbers, depth)} for name in names]
    return {"type": "record", "name": f"Record{next(numbers)}", "fields": fields}


def _type(draw: st.DrawFn, numbers: Any, depth: int) -> Any:  # noqa: PLR0911  one for each kind
    kinds = [*LOGICAL, "enum", "fixed", "optional", *(["array", "map", "record", "union"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in LOGICAL:
        return LOGICAL[kind][0]
    if kind == "enum":
        return {"type": "enum", "name": f"Enum{next(numbers)}", "symbols": ["A", "B", "C"]}
    if kind == "fixed":
        return {"type": "fixed", "name": f"Fixed{next(numbers)}", "size": draw(st.integers(1, 9))}
    if kind == "optional":
        return ["null", LOGICAL[draw(st.sampled_from(list(LOGICAL)))][0]]
    if kind == "array":
        return {"type": "array", "items": _type(draw, numbers, depth - 1)}
    if kind == "map":
        return {"type": "map", "values": _type(draw, numbers, depth - 1)}
    if kind == "union":
        branches = draw(st.permutations(["null", "boolean", "long", "double", "string", "bytes"]))
        made = [_record(draw, numbers, 0), _record(draw, numbers, 0)]
        return [*branches[: draw(st.integers(1, 6))], *made[: draw(st.integers(1, 2))]]
    return _record(draw, numbers, depth - 1)


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911  one for each kind
    """Return values as plain fastavro takes them."""
    if isinstance(schema, list):
        return st.one_of([_tagged(branch) for branch in schema])
    if schema == "null":
        return st.none()
    for kind, strategy in LOGICAL.values():
        if kind == schema:
            return strategy
    kind = schema["type"]
    if kind == "record":
        return st.fixed_dictionaries({part["name"]: values(part["type"]) for part in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    return st.binary(min_size=schema["size"], max_size=schema["size"])


def _tagged(branch: Any) -> st.SearchStrategy[Any]:
    """Say of a record in a union which one it is."""
    if isinstance(branch, dict) and branch["type"] == "record":
        return values(branch).map(lambda value: (branch["name"], value))
    return values(branch)


def plainly(schema: Any) -> st.SearchStrategy[bytes]:
    """Return encoded values, as plain fastavro writes them."""
    parsed = fastavro.parse_schema(schema)
    return values(schema).map(lambda value: encode(parsed, value))


def encode(parsed: Any, value: Any) -> bytes:
    """Return a value as plain fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, value)
    return stream.getvalue()
