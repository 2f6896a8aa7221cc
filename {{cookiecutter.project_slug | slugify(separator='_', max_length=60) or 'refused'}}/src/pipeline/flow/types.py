"""Schema files in `schemas/`: the columns they describe, and whether output columns fit them.

Guarantee: a mistake is found at start, and its one line names the file and the field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.avro.columns import members
from pipeline.avro.decode import Reader
from pipeline.avro.node import BadSchema
from pipeline.errors import BadSettings
from pipeline.flow.source import KEY, SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.avro.node import Node

FLAT: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "enum": StringType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
}
LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}
# What a column may be, beside its own type, without losing a digit on the way into a field.
WIDENS = {
    IntegerType(): {ByteType(), ShortType()},
    LongType(): {ByteType(), ShortType(), IntegerType()},
    DoubleType(): {FloatType(), ByteType(), ShortType(), IntegerType()},
}
RESERVED = (KEY, SOURCE, "outputs")


def load_schema(path: Path, where: str) -> Any:
    """A schema file's JSON; `where` names the setting in errors."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{where}: cannot be read: {error.strerror}"
        raise BadSettings(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not valid JSON: {error}"
        raise BadSettings(msg) from None


def reader_of(schema: Any, where: str) -> Reader:
    """The reader of a schema, whose fields are to become columns."""
    try:
        reader = Reader.of(schema)
    except BadSchema as error:
        msg = f"{where}: {error}"
        raise BadSettings(msg) from None
    _check_names(reader.node, where)
    for reserved in set(RESERVED) & {name.lower() for name in reader.node.names}:
        msg = f"{where}: the field name {reserved!r} is reserved here; rename it"
        raise BadSettings(msg)
    return reader


def _check_names(node: Node, where: str) -> None:
    names = [name.lower() for name in node.names]
    for name in names:
        if names.count(name) > 1:
            msg = f"{where}: two fields are named {name!r} (column names do not tell case); rename one"
            raise BadSettings(msg)
    for child in node.children:
        _check_names(child, where)


def columns_of(node: Node) -> StructType:
    """The columns of a record; a field that must not be null in the schema is not nullable here."""
    return StructType(
        [
            StructField(name, spark_type(child), nullable=child.nullable)
            for name, child in zip(node.names, node.children, strict=True)
        ]
    )


def spark_type(node: Node) -> DataType:
    """The Spark type of a schema's type."""
    node = node.only
    if node.kind == "union":
        return StructType([StructField(name, spark_type(member)) for name, member in members(node)])
    if node.kind == "record":
        return columns_of(node)
    if node.kind == "array":
        return ArrayType(spark_type(node.children[0]))
    if node.kind == "map":
        return MapType(StringType(), spark_type(node.children[0]))
    if node.logical == "decimal":
        return DecimalType(node.precision, node.scale)
    return LOGICAL.get(node.logical) or FLAT[node.kind]


def nullable(kind: DataType, leaf: Callable[[DataType], DataType] = lambda same: same) -> DataType:
    """The type with nothing required in it: of a value that is not sound, any part may be missing.

    `leaf` says what becomes of each type in it that has no parts.
    """
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType, leaf)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType, leaf))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType, leaf))
    return leaf(kind)


def misfit(given: DataType, wanted: DataType, path: str = "") -> str | None:
    """Why a column does not fit a field of a schema; None if it does, to the last digit."""
    if isinstance(wanted, StructType) and isinstance(given, StructType):
        return _struct_misfit(given, wanted, path)
    if isinstance(wanted, ArrayType) and isinstance(given, ArrayType):
        return misfit(given.elementType, wanted.elementType, path)
    if isinstance(wanted, MapType) and isinstance(given, MapType):
        return misfit(given.valueType, wanted.valueType, path)
    if isinstance(wanted, DecimalType) and isinstance(given, DecimalType):
        fits = given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale
    else:
        fits = given == wanted or given in WIDENS.get(wanted, ())
    if fits:
        return None
    return f"field {path}: the column is {given.simpleString()}, the schema takes {wanted.simpleString()}"


def _struct_misfit(given: StructType, wanted: StructType, path: str) -> str | None:
    for name in [*wanted.names, *given.names]:
        inner = f"{path}.{name}".lstrip(".")
        if name not in given.names:
            return f"field {inner}: the output has no such column"
        if name not in wanted.names:
            return f"field {inner}: the schema has no such field"
        if (why := misfit(given[name].dataType, wanted[name].dataType, inner)) is not None:
            return why
    return None
