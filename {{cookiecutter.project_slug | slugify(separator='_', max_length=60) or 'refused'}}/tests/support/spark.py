"""Codec and transform in tests: source values in, outputs or errors out, on a local Spark and without Kafka."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro

from pipeline.avro.decode import Reader
from pipeline.flow.codec import Codec, codec_of
from pipeline.flow.expected import collected
from pipeline.flow.plan import check_plan
from pipeline.flow.source import records
from pipeline.flow.usercode import RAW_SCHEMA, apply
from pipeline.lanes.emitted import emitted
from pipeline.lanes.rows import COLUMNS
from pipeline.sections import Codec as CodecSettings
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Written(NamedTuple):
    """One output record."""

    topic: str
    key: str | None
    value: Any  # decoded; a null is none
    headers: dict[str, bytes]


def codec_for(schema_file: Path, topics: tuple[str, ...] = ("out",), **given: Any) -> Codec:
    """Return the codec of a job that reads by this file, in JSON unless told otherwise."""
    values = {
        "app": {"id": "tests"},
        "source": {"bootstrap": "localhost:1", "topic": "source"},
        "output": {"topics": topics, "dead_letter_topic": "dead"},
        "codec": {"schema_file": str(schema_file), "input": "json", "output": "json", **given},
    }
    return codec_of(build(values))


def columns(**fields: str) -> Codec:
    """Return the codec of a job that reads these columns, all nullable, from JSON."""
    made = [{"name": name, "type": ["null", kind]} for name, kind in fields.items()]
    schema = {"type": "record", "name": "Event", "fields": made}
    return Codec(CodecSettings(), Reader.of(schema), json.dumps(schema))


def encoded(schema: Any, value: Any) -> bytes:
    """Return a value as plain fastavro writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def raw_of(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """Return source records as Spark's Kafka source delivers them, with these values."""
    rows: list[tuple[Any, ...]] = [
        (b"key", value, "source", 0, offset, None, 0, []) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW_SCHEMA)


def decoded(spark: SparkSession, codec: Codec, values: Sequence[bytes | None]) -> list[Any]:
    """Return the decoded rows; `row._source.error` is null where a value is sound."""
    return list(codec.decode(records(raw_of(spark, values))).collect())


def written(
    spark: SparkSession, codec: Codec, transform: Callable[[DataFrame], DataFrame], values: Sequence[bytes | None]
) -> list[list[Written]]:
    """Return each value's outputs, after the same checks as in a job."""
    raw = raw_of(spark, values)
    rows = apply(transform, codec.decode(records(raw)), codec)
    check_plan(rows, raw, stages=codec.stages)
    found = []
    for part in collected(rows).to_batches():
        made, wrong = emitted(part.column(COLUMNS.index("outputs")), codec.output_schemas())
        assert not wrong
        found += [[_written(codec, *sendable) for sendable in sendables] for sendables in made.by_row()]
    return found


def _written(codec: Codec, topic: str, key: bytes | None, value: bytes | None, headers: Any) -> Written:
    found: Any = None
    if value is not None and topic in codec.outputs:
        found = fastavro.schemaless_reader(io.BytesIO(value), json.loads(codec.outputs[topic].schema), None)
    elif value is not None:
        found = json.loads(value)
    return Written(topic, None if key is None else key.decode(), found, dict(headers or ()))
