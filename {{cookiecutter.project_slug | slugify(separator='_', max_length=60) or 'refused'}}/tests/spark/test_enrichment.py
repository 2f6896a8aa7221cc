"""Enrichment without Kafka: a left outer broadcast join that keeps each event in its place, once."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import col
from tests.support.spark import columns, written

from pipeline.errors import SafeStop
from pipeline.flow.outputs import emit, output, record
from pipeline.flow.reference import bound, enrich, frame_of
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Settings

SCHEMA = columns(id="string", account="string")
EVENTS = [b'{"id":"1","account":"a"}', b'{"id":"2","account":"b"}', b'{"id":"3","account":"a"}', b'{"id":"4"}']


def account_settings(folder: Path) -> Settings:
    """Return settings of a reference table with one column, `tier`."""
    fields = [{"name": "tier", "type": ["null", "int"], "default": None}]
    schema = folder / "account.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Account", "fields": fields}), encoding="utf-8")
    return settings_with({"topic": "accounts", "schema_file": str(schema)})


def settings_with(reference: dict[str, str]) -> Settings:
    """Return settings with reference data."""
    return build(
        {
            "app": {"id": "tests"},
            "source": {"bootstrap": "localhost:1", "topic": "source"},
            "output": {"topics": ("x",), "dead_letter_topic": "dead"},
            "reference": reference,
        }
    )


def transform(events: DataFrame) -> DataFrame:
    """Write id and tier of each event."""
    known = enrich(events, on="account")
    value = record("id", col("reference.tier").alias("tier"))
    return known.withColumn("outputs", emit(output("x", key="id", value=value)))


def tiers(spark: SparkSession, settings: Settings, items: Mapping[bytes, bytes]) -> list[Any]:
    """Return what is written for the events, with such a table."""
    joined = bound(transform, lambda: frame_of(spark, settings, items))
    return [[item.value.get("tier") for item in items] for items in written(spark, SCHEMA, joined, EVENTS)]


def test_each_event_gets_what_the_table_holds_or_null_and_none_is_lost_or_doubled(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = account_settings(tmp_path)
    assert tiers(spark, settings, {b"a": b'{"tier":1}', b"z": b'{"tier":9}'})[:3] == [[1], [None], [1]]
    assert tiers(spark, settings, {b"a": b'{"tier":2}', b"b": b'{"tier":3}'})[:3] == [[2], [3], [2]]


def test_the_example_of_the_docs_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/semantics.md").read_text(encoding="utf-8")
    [reference], [schema], [example] = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("toml", "json", "python")
    )
    (tmp_path / "account.avsc").write_text(schema, encoding="utf-8")
    given = {**tomllib.loads(reference)["reference"], "schema_file": str(tmp_path / "account.avsc")}
    settings = settings_with(given)
    found: dict[str, Any] = {}
    exec(example, found)  # noqa: S102  our own text
    joined = bound(found["transform"], lambda: frame_of(spark, settings, {b"a": b'{"tier":2}'}))
    events = [b'{"id":"1","account":"a","amount":1.5}', b'{"id":"2","account":"b","amount":2.5}']
    rows = written(spark, columns(id="string", account="string", amount="double"), joined, events)
    assert [[(one.topic, one.key, one.value) for one in row] for row in rows] == [
        [("receipts", "a", {"id": "1", "amount": 1.5, "tier": 2})],
        [("receipts", "b", {"id": "2", "amount": 2.5})],
    ]


def test_an_empty_table_and_a_value_that_is_no_json_enrich_nothing(spark: SparkSession, tmp_path: Path) -> None:
    settings = account_settings(tmp_path)
    assert tiers(spark, settings, {})[:3] == [[None]] * 3
    assert tiers(spark, settings, {b"a": b"\xff not json"})[:3] == [[None]] * 3


def test_without_a_table_the_function_is_refused_with_the_settings_to_make(spark: SparkSession) -> None:
    with pytest.raises(SafeStop, match=r"enrich\(...\) needs a table: set reference.topic"):
        written(spark, SCHEMA, transform, EVENTS)
