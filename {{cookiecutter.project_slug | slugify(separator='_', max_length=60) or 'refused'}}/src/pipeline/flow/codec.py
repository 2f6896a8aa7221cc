"""Source values to columns, by the schema in `schemas/`.

Guarantee: no record disappears here, and no number is altered. A value that cannot be decoded as it stands, to the
last digit and the last byte, keeps its row; its error says why, so that the lane writer makes a dead letter of it.
Spark's parser sets a limit: where the schema says string, a number is taken too, as Spark would print it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import coalesce, col, concat, from_json, is_valid_utf8, lit, when
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pipeline.errors import BadSettings
from pipeline.flow.source import KEY, SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

# The value is parsed as a part of a larger object: {"value": <value>, "whole": true}.
DECODED = "_decoded"
VALUE = f"{DECODED}.value"
WHOLE = f"{DECODED}.whole"
CORRUPT = f"{DECODED}.corrupt"
PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    # Of decimals in quotes: "1,50" is an error in this locale, and 150 in the default one.
    "locale": "de-CH",
    "timeZone": "UTC",
}
MAX_DIGITS = 38

PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": LongType(),
    "timestamp-micros": LongType(),
    "uuid": StringType(),
    "enum": StringType(),
}


def read_schema(path: Path) -> StructType:
    """The columns that a schema file describes."""
    where = f"codec.schema_file = {str(path)!r}"
    try:
        decoded = spark_type(json.loads(path.read_text(encoding="utf-8")), where)
    except OSError as error:
        msg = f"{where}: cannot be read: {error.strerror}"
        raise BadSettings(msg) from None
    except ValueError as error:
        msg = f"{where}: not valid JSON: {error}"
        raise BadSettings(msg) from None
    if not isinstance(decoded, StructType):
        msg = f"{where}: the schema must be a record"
        raise BadSettings(msg)
    for reserved in {KEY, SOURCE, "outputs"} & {name.lower() for name in decoded.names}:
        msg = f"{where}: the field name {reserved!r} is reserved here; rename it"
        raise BadSettings(msg)
    return decoded


def spark_type(schema: Any, where: str) -> DataType:
    """The Spark type of an Avro type; `where` names the field in errors."""
    if isinstance(schema, list):
        kinds = [kind for kind in schema if kind != "null"]
        found = spark_type(kinds[0], where) if len(kinds) == 1 else None
    elif isinstance(schema, dict):
        found = _complex_type(schema, where)
    else:
        found = PRIMITIVES.get(schema)
    if found is None:
        msg = f"{where}: {json.dumps(schema)} has no column type here; use a primitive, record, array, map or enum"
        raise BadSettings(msg)
    return found


def _complex_type(schema: dict[str, Any], where: str) -> DataType | None:
    kind = schema.get("type")
    if schema.get("logicalType") == "decimal":
        return _decimal(schema)
    if kind == "record":
        return _record(schema, where)
    if kind == "array":
        return ArrayType(spark_type(schema.get("items"), where))
    if kind == "map":
        return MapType(StringType(), spark_type(schema.get("values"), where))
    found = LOGICAL.get(str(schema.get("logicalType", kind)))
    return found or (None if kind == "fixed" else spark_type(kind, where))


def _decimal(schema: dict[str, Any]) -> DataType | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    sound = (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
        and 0 < precision <= MAX_DIGITS
    )
    return DecimalType(precision, scale) if sound else None


def _record(schema: dict[str, Any], where: str) -> StructType:
    fields = schema.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, dict) and "name" in field for field in fields):
        msg = f"{where}: a record needs fields, each with name and type"
        raise BadSettings(msg)
    names = [str(field["name"]).lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            msg = f"{where}: two fields are named {name!r} (column names do not tell case); rename one"
            raise BadSettings(msg)
    return StructType([_field(field, where) for field in fields])


def _field(field: dict[str, Any], where: str) -> StructField:
    kind = field.get("type")
    nullable = isinstance(kind, list) and "null" in kind
    return StructField(field["name"], spark_type(kind, f"{where}, field {field['name']}"), nullable)


def decode(records: DataFrame, schema: StructType) -> DataFrame:
    """Replace the column `value` by the schema's columns, and note in `_source` why a value was not sound."""
    text = when(is_valid_utf8(col("value").cast("string")), col("value").cast("string"))
    # Spark's parser ends behind the first object, whatever follows: `whole` is reached only if nothing does.
    wrapped = concat(lit('{"value":'), text, lit(',"whole":true}'))
    parsed = StructType().add("value", _lenient(schema)).add("whole", BooleanType()).add("corrupt", StringType())
    decoded = records.withColumn(DECODED, from_json(wrapped, parsed, PARSER))
    return decoded.select(
        KEY,
        col(SOURCE).withField("error", _error(schema)).alias(SOURCE),
        *(_read(field.name).cast(_nullable(field.dataType)).alias(field.name) for field in schema),
    )


def _lenient(kind: DataType) -> DataType:
    """The type to parse by: nothing is required, and decimals keep all their digits, so that the rest can be judged."""
    return _nullable(kind, lambda decimal: DecimalType(MAX_DIGITS, MAX_DIGITS - (decimal.precision - decimal.scale)))


def _nullable(kind: DataType, decimal: Callable[[DecimalType], DecimalType] = lambda same: same) -> DataType:
    """The type with nothing required in it: of a value that is not sound, any part may be missing."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType, decimal)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType, decimal))
    return decimal(kind) if isinstance(kind, DecimalType) else kind


def _read(name: str) -> Column:
    return col(f"{VALUE}.{name}")


def _error(schema: StructType) -> Column:
    """Why a value is no event of this schema; the first reason that holds."""
    value = col("value")
    reasons = [
        when(value.isNull(), lit("null value (tombstone)")),
        when(~is_valid_utf8(value.cast("string")), lit("not valid UTF-8")),
        when(
            col(CORRUPT).isNotNull() | col(VALUE).isNull() | col(WHOLE).isNull(),
            lit("not one JSON object of this schema"),
        ),
    ]
    return coalesce(*reasons, *_missing(schema, ()), *_rounded(schema))


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


def _rounded(schema: StructType) -> list[Column]:
    """Decimals with more digits than their type has; a map is not comparable, and takes its decimals as they come."""
    fields = [(field.name, _nullable(field.dataType), _lenient(field.dataType)) for field in schema]
    return [
        when(~_read(name).eqNullSafe(_read(name).cast(kind).cast(parsed)), lit(f"field {name} has too many decimals"))
        for name, kind, parsed in fields
        if kind != parsed
    ]
