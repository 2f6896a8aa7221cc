"""JSON values to columns, by Spark's own parser, and strictly.

Guarantee: no number is altered, and nothing is taken that another parser would read otherwise: no NaN, no duplicate
keys, no lone surrogates, no infinities, nothing behind the object, bounded depth and digits (1,000 each, Jackson's).
Spark's parser sets a limit: where the schema says string, a number is taken too, as Spark would print it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import abs as magnitude
from pyspark.sql.functions import (
    coalesce,
    col,
    concat,
    from_json,
    is_valid_utf8,
    lit,
    octet_length,
    struct,
    timestamp_micros,
    timestamp_millis,
    transform,
    transform_values,
    try_parse_json,
    when,
)
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.avro.columns import MICROS
from pipeline.avro.limits import LIMITS, told
from pipeline.avro.node import MAX_DIGITS, walk
from pipeline.errors import BadSettings
from pipeline.flow.source import KEY, SOURCE
from pipeline.flow.types import columns_of, nullable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.avro.decode import Reader
    from pipeline.avro.limits import Limits
    from pipeline.avro.node import Node

# The value is parsed as a part of a larger object: {"value": <value>, "whole": true}.
DECODED = "_decoded"
VALUE = f"{DECODED}.value"
WHOLE = f"{DECODED}.whole"
CORRUPT = f"{DECODED}.corrupt"
PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    # Of decimals in quotes: "1,50" is an error in this locale, and 150 in the default one.
    "locale": "de-CH",
    "timeZone": "UTC",
}
# Text in which an escape names half of a character: the first half without the second, or the second alone.
LONE_SURROGATE = (
    r"(?i)(?<!\\)(?:\\\\)*\\u(?:d[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})"
    r"|(?<!\\ud[89ab][0-9a-f]{2}\\u)d[c-f][0-9a-f]{2})"
)
NOT_THIS = "not one JSON object of this schema"


def decode_json(records: DataFrame, reader: Reader, limits: Limits) -> DataFrame:
    """Replace the column `value` by the schema's columns, and note in `_source` why a value was not sound."""
    schema = columns_of(reader.node)
    small = octet_length("value") <= limits.bytes
    text = when(small & is_valid_utf8(col("value").cast("string")), col("value").cast("string"))
    # Spark's parser ends behind the first object, whatever follows: `whole` is reached only if nothing does.
    wrapped = concat(lit('{"value":'), text, lit(',"whole":true}'))
    parsed = StructType().add("value", _lenient(schema)).add("whole", BooleanType()).add("corrupt", StringType())
    decoded = records.withColumn(DECODED, from_json(wrapped, parsed, PARSER))
    return decoded.select(
        KEY,
        col(SOURCE).withField("error", _error(schema, reader.node, text, limits)).alias(SOURCE),
        *(
            _shaped(_read(name), child).cast(nullable(schema[name].dataType)).alias(name)
            for name, child in zip(reader.node.names, reader.node.children, strict=True)
        ),
    )


def check_json(reader: Reader, where: str) -> None:
    """Refuse what JSON cannot say: which of several types a value has."""
    for node in walk(reader.node):
        if node.kind == "union" and node.only is node:
            msg = f"{where}: field {node.path}: a union of several types cannot be read from JSON"
            raise BadSettings(msg)


def _lenient(kind: DataType) -> DataType:
    """The type to parse by: nothing is required, decimals keep all their digits, times are numbers."""
    return nullable(kind, lambda leaf: _all_digits(leaf) if isinstance(leaf, DecimalType) else _time_as_number(leaf))


def _all_digits(kind: DecimalType) -> DecimalType:
    return DecimalType(MAX_DIGITS, MAX_DIGITS - (kind.precision - kind.scale))


def _time_as_number(kind: DataType) -> DataType:
    return LongType() if isinstance(kind, TimestampType | TimestampNTZType) else kind


def _has_times(node: Node) -> bool:
    return any("timestamp" in part.logical for part in walk(node))


def _shaped(column: Column, node: Node) -> Column:
    """Times from their numbers, wherever they stand."""
    node = node.only
    if not _has_times(node):
        return column
    if node.kind == "record":
        parts = zip(node.names, node.children, strict=True)
        made = struct(*(_shaped(column[name], child).alias(name) for name, child in parts))
        return when(column.isNotNull(), made)
    if node.kind == "array":
        return transform(column, lambda item: _shaped(item, node.children[0]))
    if node.kind == "map":
        return transform_values(column, lambda _key, item: _shaped(item, node.children[0]))
    made = timestamp_millis(column) if node.logical.endswith("millis") else timestamp_micros(column)
    moment = when(_is_timely(column, node), made)
    return moment.cast("timestamp_ntz") if node.logical.startswith("local") else moment


def _read(name: str) -> Column:
    return col(f"{VALUE}.{name}")


def _error(schema: StructType, node: Node, text: Column, limits: Limits) -> Column:
    """Why a value is no event of this schema; the first reason that holds."""
    value = col("value")
    too_large = told(LIMITS, f"more than codec.max_bytes = {limits.bytes}")
    reasons = [
        when(value.isNull(), lit("null value (tombstone)")),
        when(octet_length("value") > limits.bytes, lit(too_large)),
        when(~is_valid_utf8(value.cast("string")), lit("not valid UTF-8")),
        when(col(CORRUPT).isNotNull() | col(VALUE).isNull() | col(WHOLE).isNull(), lit(NOT_THIS)),
        when(try_parse_json(text).isNull(), lit("duplicate keys, or not strict JSON")),
        when(text.contains("\\u") & text.rlike(LONE_SURROGATE), lit("half of a surrogate pair")),
    ]
    return coalesce(*reasons, *_missing(schema, ()), *_infinite(schema, ()), *_timely(node, ()), *_rounded(schema))


def _missing(schema: StructType, parents: tuple[str, ...]) -> list[Column]:
    """Required fields that are not there; those of a nested record are asked for where the record is there."""
    found: list[Column] = []
    for field in schema:
        path = (*parents, field.name)
        present = _read(".".join(parents)).isNotNull() if parents else lit(True)  # noqa: FBT003  a literal of Spark's
        if not field.nullable:
            absent = present & _read(".".join(path)).isNull()
            found.append(when(absent, lit(f"field {'.'.join(path)} is missing")))
        if isinstance(field.dataType, StructType):
            found += _missing(field.dataType, path)
    return found


def _infinite(schema: StructType, parents: tuple[str, ...]) -> list[Column]:
    """Numbers too large for their type, which are read as infinite; not those within lists and maps."""
    found: list[Column] = []
    for field in schema:
        path = (*parents, field.name)
        if isinstance(field.dataType, StructType):
            found += _infinite(field.dataType, path)
        elif isinstance(field.dataType, FloatType | DoubleType):
            beyond = magnitude(_read(".".join(path))) == float("inf")
            found.append(when(beyond, lit(f"field {'.'.join(path)} is too large")))
    return found


def _timely(node: Node, parents: tuple[str, ...]) -> list[Column]:
    """Times beyond the years that a column holds; not those within lists and maps."""
    found: list[Column] = []
    for name, child in zip(node.names, (child.only for child in node.children), strict=True):
        path = (*parents, name)
        if child.kind == "record":
            found += _timely(child, path)
        elif "timestamp" in child.logical:
            outside = ~_is_timely(_read(".".join(path)), child)
            found.append(when(outside, lit(f"field {'.'.join(path)}: a time beyond the years 1 to 9999")))
    return found


def _is_timely(column: Column, node: Node) -> Column:
    factor = 1_000 if node.logical.endswith("millis") else 1
    low, high = MICROS
    return column.between(low // factor, high // factor)


def _rounded(schema: StructType) -> list[Column]:
    """Decimals with more digits than their type has; a map is not comparable, and takes its decimals as they come."""
    # With times as numbers, as they are parsed, only decimals may differ.
    fields = [(field.name, nullable(field.dataType, _time_as_number), _lenient(field.dataType)) for field in schema]
    return [
        when(~_read(name).eqNullSafe(_read(name).cast(kind).cast(parsed)), lit(f"field {name} has too many decimals"))
        for name, kind, parsed in fields
        if kind != parsed
    ]
