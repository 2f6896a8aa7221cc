"""Avro in Spark: columns of the right types, rows that stay whatever their bytes, outputs by their topic's schema."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import expr, udf
from tests.support.spark import codec_for, decoded, encoded, raw_of, written

from pipeline.errors import BadSettings, SafeStop
from pipeline.flow.outputs import emit, output, record
from pipeline.flow.source import records
from pipeline.local.malformed import UNDECODABLE_AVRO

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.flow.codec import Codec

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIELDS: dict[str, Any] = {
    "id": "string",
    "amount": DECIMAL,
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    "hash": {"type": "fixed", "name": "Hash", "size": 4},
    "note": ["null", "string"],
    "either": ["null", "int", "string", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}],
    "parts": {"type": "array", "items": DECIMAL},
    "tags": {"type": "map", "values": "long"},
    "trace": {"type": "string", "logicalType": "uuid"},
}
SCHEMA = {"type": "record", "name": "Event", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
SQL_TYPES = {
    "id": "string",
    "amount": "decimal(12,2)",
    "at": "timestamp",
    "day": "date",
    "local": "timestamp_ntz",
    "kind": "string",
    "hash": "binary",
    "note": "string",
    "either": "struct<member0:int,member1:string,member2:struct<x:int>>",
    "parts": "array<decimal(12,2)>",
    "tags": "map<string,bigint>",
    "trace": "string",
}
EVENT: dict[str, Any] = {
    "id": "e",
    "amount": Decimal("-1.10"),
    "at": datetime(2026, 1, 31, 8, 0, 0, 1000, UTC),
    "day": date(2026, 1, 31),
    "local": datetime(2026, 1, 31, 8, 0, 0, 1),  # noqa: DTZ001  a local time has no zone
    "kind": "B",
    "hash": b"\x00\x01\x02\xff",
    "note": None,
    "either": {"x": 7},
    "parts": [Decimal("0.01"), Decimal("9999999999.99")],
    "tags": {"a": 1, "b": -(2**63)},
    "trace": "6e9a3c52-0000-4000-8000-000000000001",
}


@pytest.fixture
def codec(tmp_path: Path) -> Codec:
    """Return a job's codec in Avro whose output has the input's schema."""
    for name in ("event", "out"):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return codec_for(tmp_path / "event.avsc", **avro(tmp_path))


def avro(folder: Path) -> dict[str, Any]:
    """Return settings of Avro at both ends."""
    return {"input": "avro", "output": "avro", "output_schema_files": f"{folder}/{{topic}}.avsc"}


def same(events: DataFrame) -> DataFrame:
    """Write every event as it is."""
    return events.withColumn("outputs", emit(output("out", key="id", value=record(*FIELDS))))


def test_columns_have_the_types_of_the_schema(spark: SparkSession, codec: Codec) -> None:
    frame = codec.decode(records(raw_of(spark, [])))
    assert {field.name: field.dataType.simpleString() for field in frame.schema if field.name in FIELDS} == SQL_TYPES


def test_what_is_decoded_and_encoded_again_is_the_same_to_the_byte(spark: SparkSession, codec: Codec) -> None:
    events = [EVENT, {**EVENT, "note": "n", "either": "text"}, {**EVENT, "either": 3, "parts": [], "tags": {}}]
    values = [encoded(SCHEMA, event) for event in events]
    found = written(spark, codec, same, values)
    assert [encoded(SCHEMA, items[0].value) for items in found] == values
    assert [items[0].value["amount"] for items in found] == [Decimal("-1.10")] * 3


def test_rows_of_any_bytes_stay_in_their_order_with_an_error(spark: SparkSession, codec: Codec) -> None:
    rows = decoded(spark, codec, [*UNDECODABLE_AVRO, encoded(SCHEMA, EVENT)])
    assert [row["_source"]["offset"] for row in rows] == list(range(len(UNDECODABLE_AVRO) + 1))
    *errors, sound = [row["_source"]["error"] for row in rows]
    assert None not in errors
    assert sound is None
    assert rows[-1]["at"] == EVENT["at"].replace(tzinfo=None)


def test_only_the_projects_own_stage_may_pass_whole_batches_to_python(spark: SparkSession, codec: Codec) -> None:
    def transform(events: DataFrame) -> DataFrame:
        return same(events.mapInArrow(lambda batches: batches, events.schema))

    with pytest.raises(SafeStop, match="the operator MapInArrow is not allowed"):
        written(spark, codec, transform, [encoded(SCHEMA, EVENT)])


def test_a_filter_above_the_codec_is_still_refused(spark: SparkSession, codec: Codec) -> None:
    with pytest.raises(SafeStop, match="the operator Filter is not allowed"):
        written(spark, codec, lambda events: same(events.filter("amount > 0")), [encoded(SCHEMA, EVENT)])


def test_a_users_own_udf_is_still_allowed(spark: SparkSession, codec: Codec) -> None:
    longer = udf(lambda text: None if text is None else text + "!", "string")
    [[found]] = written(
        spark, codec, lambda events: same(events.withColumn("id", longer("id"))), [encoded(SCHEMA, EVENT)]
    )
    assert found.value["id"] == "e!"


@pytest.mark.parametrize(
    ("name", "column", "why"),
    [
        ("amount", "CAST(amount AS decimal(13,3))", "the column is decimal(13,3), the schema takes decimal(12,2)"),
        ("at", "CAST(at AS bigint)", "the column is bigint, the schema takes timestamp"),
        ("either", "id", "the column is string, the schema takes struct<"),
        ("extra", "1", "the schema has no such field"),
        ("parts", "struct(id)", "the column is struct<id:string>, the schema takes array<decimal(12,2)>"),
    ],
)
def test_output_columns_that_do_not_fit_are_refused_with_field_and_file(
    spark: SparkSession, codec: Codec, name: str, column: str, why: str
) -> None:
    def transform(events: DataFrame) -> DataFrame:
        changed = events.withColumn(name, expr(column))
        return changed.withColumn("outputs", emit(output("out", key="id", value=record(*{**FIELDS, name: 0}))))

    with pytest.raises(SafeStop) as refused:
        written(spark, codec, transform, [])
    assert str(refused.value).startswith(
        f"transform: the output to topic out does not fit {codec.outputs['out'].path}: field {name}"
    )
    assert why in str(refused.value)


def test_an_output_column_that_is_missing_is_refused(spark: SparkSession, codec: Codec) -> None:
    def transform(events: DataFrame) -> DataFrame:
        return events.withColumn("outputs", emit(output("out", key="id", value=record("id"))))

    with pytest.raises(SafeStop, match="field amount: the output has no such column"):
        written(spark, codec, transform, [])


@pytest.mark.usefixtures("spark")
def test_a_record_that_is_described_outside_of_transform_has_no_format() -> None:
    with pytest.raises(SafeStop, match="inside the transform"):
        emit(output("out", key="id", value=record("id")))


def test_a_writers_schema_that_cannot_be_read_is_refused_with_field_and_file(tmp_path: Path) -> None:
    reader = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}
    writer = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
    (tmp_path / "reader.avsc").write_text(json.dumps(reader), encoding="utf-8")
    (tmp_path / "writer.avsc").write_text(json.dumps(writer), encoding="utf-8")
    given: dict[str, Any] = {"input": "avro", "writer_schema_file": str(tmp_path / "writer.avsc")}
    with pytest.raises(BadSettings) as refused:
        codec_for(tmp_path / "reader.avsc", **given)
    assert str(refused.value) == (
        f"codec.writer_schema_file = '{tmp_path}/writer.avsc': "
        f"what it writes cannot be read by {tmp_path}/reader.avsc: "
        "field b: the writer does not have it, and the reader has no default"
    )


def test_values_of_a_compatible_writer_get_the_readers_columns(spark: SparkSession, tmp_path: Path) -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"], "default": None}]
    reader = {"type": "record", "name": "E", "fields": fields}
    writer = {
        "type": "record",
        "name": "E",
        "fields": [{"name": "gone", "type": "string"}, {"name": "a", "type": "int"}],
    }
    (tmp_path / "reader.avsc").write_text(json.dumps(reader), encoding="utf-8")
    (tmp_path / "writer.avsc").write_text(json.dumps(writer), encoding="utf-8")
    codec = codec_for(tmp_path / "reader.avsc", input="avro", writer_schema_file=str(tmp_path / "writer.avsc"))
    [row] = decoded(spark, codec, [encoded(writer, {"gone": "x", "a": 5})])
    assert (row["_source"]["error"], row["a"], row["b"]) == (None, 5, None)


def test_a_missing_output_schema_is_refused_with_topic_and_file(tmp_path: Path) -> None:
    (tmp_path / "event.avsc").write_text(json.dumps(SCHEMA), encoding="utf-8")
    with pytest.raises(BadSettings, match=rf"topic out: '{tmp_path}/out.avsc': cannot be read"):
        codec_for(tmp_path / "event.avsc", **avro(tmp_path))
