"""JSON values to columns, by Spark's own parser, and strictly.

Guarantee: no number is altered, and nothing is taken that another parser would read otherwise: no NaN, no duplicate
keys, no lone surrogates, no infinities, nothing behind the object, bounded depth and digits (1,000 each, Jackson's).
Spark's parser sets limits: where the schema says string, a number is taken too, as Spark would print it; and of a
decimal it looks at 38 digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    coalesce,
    col,
    concat,
    date_from_unix_date,
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
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.avro.limits import LIMITS, told
from pipeline.avro.node import MAX_DIGITS, walk
from pipeline.errors import BadSettings
from pipeline.flow.json_flaws import flaws, is_time, is_timely
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
MOMENTS = {"date": date_from_unix_date, "millis": timestamp_millis, "micros": timestamp_micros}
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
        col(SOURCE).withField("error", _error(reader.node, text, limits)).alias(SOURCE),
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
    return nullable(kind, _lenient_leaf)


def _lenient_leaf(kind: DataType) -> DataType:
    if isinstance(kind, DecimalType):
        return DecimalType(MAX_DIGITS, MAX_DIGITS - (kind.precision - kind.scale))
    if isinstance(kind, TimestampType | TimestampNTZType):
        return LongType()
    return IntegerType() if isinstance(kind, DateType) else kind


def _shaped(column: Column, node: Node) -> Column:
    """Times from their numbers, wherever they stand."""
    node = node.only
    if not any(map(is_time, walk(node))):
        return column
    if node.kind == "record":
        parts = zip(node.names, node.children, strict=True)
        made = struct(*(_shaped(column[name], child).alias(name) for name, child in parts))
        return when(column.isNotNull(), made)
    if node.kind == "array":
        return transform(column, lambda item: _shaped(item, node.children[0]))
    if node.kind == "map":
        return transform_values(column, lambda _key, item: _shaped(item, node.children[0]))
    moment = when(is_timely(column, node), MOMENTS[node.logical.rpartition("-")[2]](column))
    return moment.cast("timestamp_ntz") if node.logical.startswith("local") else moment


def _read(name: str) -> Column:
    return col(f"{VALUE}.{name}")


def _error(node: Node, text: Column, limits: Limits) -> Column:
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
    return coalesce(*reasons, *(when(flaw.holds(col(VALUE)), lit(flaw.error)) for flaw in flaws(node)))
