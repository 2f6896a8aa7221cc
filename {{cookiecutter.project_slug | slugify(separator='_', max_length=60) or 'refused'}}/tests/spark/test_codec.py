"""Values to columns: what is sound arrives to the last digit, what is not keeps its row and says why."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark import decoded

from pipeline.errors import BadSettings
from pipeline.flow.codec import read_schema
from pipeline.local.malformed import UNDECODABLE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "amount", "type": DECIMAL},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": ["null", "string"]},
    {"name": "count", "type": ["null", "int"]},
    {
        "name": "place",
        "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}],
    },
    {"name": "parts", "type": ["null", {"type": "array", "items": DECIMAL}]},
]
BROKEN = "not one JSON object of this schema"


@pytest.fixture
def schema(tmp_path: Path) -> StructType:
    """Return a schema of each kind of field."""
    return schema_of(tmp_path, {"type": "record", "name": "Event", "fields": FIELDS})


def schema_of(folder: Path, schema: Any) -> StructType:
    """Return what a schema file with this content describes."""
    path = folder / "event.avsc"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema), encoding="utf-8")
    return read_schema(path)


def event(**changed: str) -> bytes:
    """Return a sound event with these fields changed, as JSON text."""
    fields = {"id": '"e"', "amount": "1.10", "at": "1", **changed}
    return b"{%s}" % ",".join(f'"{name}":{text}' for name, text in fields.items()).encode()


def test_sound_values_arrive_to_the_last_digit(spark: SparkSession, schema: StructType) -> None:
    amounts = ["1.10", "0", "-0.01", "9999999999.99", "-9999999999.99", "1e2", "1.100", '"1.50"', "0.1"]
    rows = decoded(spark, schema, [event(amount=amount) for amount in amounts])
    assert [row["_source"]["error"] for row in rows] == [None] * len(rows)
    assert [row["amount"] for row in rows] == [Decimal(amount.strip('"')) for amount in amounts]
    assert {row["at"] for row in rows} == {1}


def test_fields_that_may_be_null_may_be_missing(spark: SparkSession, schema: StructType) -> None:
    full = event(note='"n"', count="7", place='{"city":"Bern"}', parts="[1.10,2]", more='{"unknown":[1]}')
    rows = decoded(spark, schema, [full, event(), event(note="null", count="null", place="null", parts="null")])
    assert [row["_source"]["error"] for row in rows] == [None, None, None]
    first, *others = [(row["note"], row["count"], row["place"], row["parts"]) for row in rows]
    assert first == ("n", 7, ("Bern",), [Decimal("1.10"), Decimal("2.00")])
    assert others == [(None, None, None, None)] * 2


UNSOUND: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "null value (tombstone)"),
    "empty": (b"", BROKEN),
    "blank": (b" \n", BROKEN),
    "not JSON": (b"not json", BROKEN),
    "truncated": (event()[:-1], BROKEN),
    "invalid UTF-8": (b'{"id":"\xff","amount":1,"at":1}', "not valid UTF-8"),
    "array": (b"[" + event() + b"]", BROKEN),
    "array of two": (b"[" + event() + b"," + event() + b"]", BROKEN),
    "text": (b'"e"', BROKEN),
    "number": (b"12", BROKEN),
    "JSON null": (b"null", BROKEN),
    "two objects": (event() + event(), BROKEN),
    "two lines": (event() + b"\n" + event(), BROKEN),
    "two with a comma": (event() + b"," + event(), BROKEN),
    "one brace too many": (event() + b"}", BROKEN),
    "rubbish behind": (event() + b"rubbish", BROKEN),
    "zero byte behind": (event() + b"\x00", BROKEN),
    "byte order mark": (b"\xef\xbb\xbf" + event(), BROKEN),
    "single quotes": (event().replace(b'"', b"'"), BROKEN),
    "empty object": (b"{}", "field id is missing"),
    "required is missing": (b'{"id":"e","at":1}', "field amount is missing"),
    "required is null": (event(amount="null"), "field amount is missing"),
    "nested required is missing": (event(place="{}"), "field place.city is missing"),
    "text for a number": (event(at='"1"'), BROKEN),
    "fraction for a whole number": (event(at="1.5"), BROKEN),
    "true for a number": (event(amount="true"), BROKEN),
    "not a number": (event(amount="NaN"), BROKEN),
    "number too large": (event(at="9223372036854775808"), BROKEN),
    "nullable of another type": (event(count='"7"'), BROKEN),
    "record of another type": (event(place="[]"), BROKEN),
    "too many digits": (event(amount="10000000000.00"), BROKEN),
    "would be rounded": (event(amount="1.005"), "field amount has too many decimals"),
    "would be rounded in a list": (event(parts="[1,1.005]"), "field parts has too many decimals"),
    "decimal comma": (event(amount='"1,50"'), BROKEN),
}


def test_an_unsound_value_keeps_its_row_and_says_why(spark: SparkSession, schema: StructType) -> None:
    values = [value for value, _ in UNSOUND.values()]
    rows = decoded(spark, schema, [*values, event()])
    assert [row["_source"]["offset"] for row in rows] == list(range(len(values) + 1))
    *errors, sound = [row["_source"]["error"] for row in rows]
    assert dict(zip(UNSOUND, errors, strict=True)) == {name: error for name, (_, error) in UNSOUND.items()}
    assert sound is None


def test_nothing_that_the_workload_calls_undecodable_is_decoded(spark: SparkSession, schema: StructType) -> None:
    rows = decoded(spark, schema, UNDECODABLE)
    assert None not in [row["_source"]["error"] for row in rows]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "not valid JSON"),
        ('"string"', "the schema must be a record"),
        ("12", "12 has no column type here"),
        ("null", "null has no column type here"),
        ({"type": "record", "name": "E"}, "a record needs fields, each with name and type"),
        ({"type": "record", "name": "E", "fields": [{"type": "string"}]}, "a record needs fields"),
        ({"type": "record", "name": "E", "fields": ["x"]}, "a record needs fields"),
        ({"name": "E"}, "null has no column type here"),
        *(
            ({"type": "record", "name": "E", "fields": fields}, line)
            for fields, line in [
                ([{"name": "x"}], "field x: null has no column type here"),
                ([{"name": "x", "type": "text"}], 'field x: "text" has no column type here'),
                ([{"name": "x", "type": ["int", "string"]}], "field x: ["),
                ([{"name": "x", "type": {"type": "fixed", "size": 3, "name": "F"}}], "field x: {"),
                ([{"name": "x", "type": {"type": "bytes", "logicalType": "decimal"}}], "field x: {"),
                ([{"name": "x", "type": {**DECIMAL, "precision": 39}}], "field x: {"),
                ([{"name": "x", "type": {**DECIMAL, "scale": 13}}], "field x: {"),
                ([{"name": "outputs", "type": "int"}], "the field name 'outputs' is reserved here; rename it"),
                ([{"name": "_Source", "type": "int"}], "the field name '_source' is reserved here; rename it"),
                ([{"name": "x", "type": "int"}, {"name": "X", "type": "int"}], "two fields are named 'x'"),
            ]
        ),
    ],
)
def test_a_mistake_in_a_schema_file_is_one_line_that_names_it(tmp_path: Path, content: Any, line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        schema_of(tmp_path, content)
    assert str(refused.value).startswith(f"codec.schema_file = '{tmp_path / 'event.avsc'}'")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["missing.avsc", "."])
def test_a_schema_file_that_cannot_be_read_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettings, match=r"^codec.schema_file = .*: cannot be read: "):
        read_schema(tmp_path / name)
