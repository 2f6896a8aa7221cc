"""What Spark's parser takes without a word, and no value of the schema may be: one walk over the schema, at any depth.

Guarantee: in a record, a list or a map, however deep, nothing required is missing, no number is infinite, no time is
beyond the years 1 to 9999, no decimal would be rounded, no symbol is unknown, and no fixed has another length. The
error names the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.functions import abs as magnitude
from pyspark.sql.functions import exists, map_values, octet_length
from pyspark.sql.types import DecimalType

from pipeline.avro.columns import DAYS, MICROS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from pipeline.avro.node import Node

    Test = Callable[[Column], Column]


class Flaw(NamedTuple):
    """One thing that may be wrong with a value: true of the parsed column if it is, and what is then said."""

    holds: Test
    error: str


def flaws(node: Node, path: str = "") -> list[Flaw]:
    """All that may be wrong with a value of this type, with what it holds."""
    return [flaw for name, child in _fields(node) for flaw in _of_field(child, name, f"{path}.{name}".lstrip("."))]


def is_timely(column: Column, node: Node) -> Column:
    """Whether a time, as the number it is parsed as, is one that a column holds."""
    low, high = DAYS if node.logical == "date" else MICROS
    factor = 1_000 if node.logical.endswith("millis") else 1
    return column.between(low // factor, high // factor)


def is_time(node: Node) -> bool:
    """Whether the type is a time, which JSON gives as a number."""
    return node.logical == "date" or "timestamp" in node.logical


def _fields(node: Node) -> list[tuple[str, Node]]:
    return list(zip(node.names, node.children, strict=True))


def _of_field(node: Node, name: str, path: str) -> list[Flaw]:
    """Of a field of a record that is there."""
    absent = [] if node.nullable else [Flaw(lambda record: record[name].isNull(), f"field {path} is missing")]
    return absent + [Flaw(_at(name, inner.holds), inner.error) for inner in _within(node.only, path)]


def _at(name: str, test: Test) -> Test:
    return lambda record: test(record[name])


def _within(node: Node, path: str) -> list[Flaw]:
    """Of a value; a null has none of these."""
    if node.kind == "record":
        return [Flaw(_where_present(inner.holds), inner.error) for inner in flaws(node, path)]
    if node.kind in {"array", "map"}:
        item = node.children[0]
        empty = [] if item.nullable else [Flaw(lambda value: value.isNull(), f"field {path} holds a null")]
        of_item = [*empty, *_within(item.only, path)]
        return [Flaw(_of_some(inner.holds, of_map=node.kind == "map"), inner.error) for inner in of_item]
    return _leaf(node, path)


def _where_present(test: Test) -> Test:
    return lambda record: record.isNotNull() & test(record)


def _of_some(test: Test, *, of_map: bool) -> Test:
    return lambda items: exists(map_values(items) if of_map else items, test)


def _leaf(node: Node, path: str) -> list[Flaw]:
    if is_time(node):
        return [Flaw(lambda value: ~is_timely(value, node), f"field {path}: a time beyond the years 1 to 9999")]
    if node.logical == "decimal":
        return [Flaw(lambda value: _is_rounded(value, node), f"field {path} has too many decimals")]
    if node.kind in {"float", "double"}:
        return [Flaw(lambda value: magnitude(value) == float("inf"), f"field {path} is too large")]
    if node.kind == "enum":
        return [Flaw(lambda value: ~value.isin(*node.symbols), f"field {path} is not one of its symbols")]
    if node.kind == "fixed":
        return [Flaw(lambda value: octet_length(value) != node.size, f"field {path} has not {node.size} bytes")]
    return []


def _is_rounded(value: Column, node: Node) -> Column:
    kept = value.cast(DecimalType(node.precision, node.scale))  # a null where rounding up makes a digit too many
    return value.isNotNull() & ~kept.eqNullSafe(value)
