"""Avro values to columns: the project's own stage in the plan, one crossing to Python for a whole batch of rows.

Guarantee: as many rows come out as go in, in their order, with key and `_source` untouched but for its error.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.avro.decode import Decoder, Reader, parts
from pipeline.avro.framed import BY_GUID, GUID_HEADER, FramedDecoder
from pipeline.avro.limits import Limits  # noqa: TC001  a field of a named tuple
from pipeline.avro.registry import registry
from pipeline.flow.source import KEY, SOURCE
from pipeline.flow.types import columns_of, nullable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame


class AvroInput(NamedTuple):
    """All that a task needs to decode; schemas as JSON text, since the files are the driver's."""

    reader: str
    writer: str
    limits: Limits
    registry_url: str = ""  # only if values are framed
    registry_seconds: float = 0.0
    registry_user_info_file: str = ""  # the path alone: it is read where the task runs


@cache
def decoder(given: AvroInput) -> Decoder | FramedDecoder:
    """One for each schema and process."""
    reader = Reader.of(json.loads(given.reader))
    if given.registry_url:
        known = registry(given.registry_url, given.registry_seconds, given.registry_user_info_file)
        return FramedDecoder(reader, known, given.limits)
    return Decoder(reader, json.loads(given.writer), given.limits)


def decode_avro(records: DataFrame, reader: Reader, given: AvroInput) -> DataFrame:
    """Replace the column `value` by the schema's columns, and note in `_source` why a value was not sound."""
    source = records.schema[SOURCE].dataType
    columns = nullable(columns_of(reader.node))
    made = StructType(
        [
            records.schema[KEY],
            StructField(SOURCE, StructType([*source.fields, StructField("error", StringType())]), nullable=False),
            *columns.fields,
        ]
    )
    return records.select(KEY, SOURCE, "value").mapInArrow(_stage(given), made)


def _stage(given: AvroInput) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def decode_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from decoded(batch, decoder(given))

    return decode_batches


def named_by_guid(headers: Any) -> list[int]:
    """The rows whose schema is named in a header."""
    named = pc.equal(headers.flatten().field(0), GUID_HEADER)
    return pc.list_parent_indices(headers).filter(named).to_pylist()  # type: ignore[no-any-return]


def decoded(batch: Any, made: Decoder | FramedDecoder) -> Iterator[Any]:
    """One batch of key, source and value to batches with the columns; in parts, so that memory stays bounded."""
    key, source, value = batch.columns
    values = value.to_numpy(zero_copy_only=False).tolist() if len(value) else []
    if isinstance(made, FramedDecoder):
        for row in named_by_guid(source.field("headers")):
            values[row] = BY_GUID
    for part in parts(values):
        if part.start == part.stop:
            continue
        columns, errors = made.decode(values[part])
        taken = source.slice(part.start, part.stop - part.start)
        fields = [field.name for field in source.type]
        told = pa.StructArray.from_arrays([*taken.flatten(), pa.array(errors, pa.string())], names=[*fields, "error"])
        yield pa.RecordBatch.from_arrays(
            [key.slice(part.start, part.stop - part.start), told, *columns],
            names=[KEY, SOURCE, *made.names],
        )
