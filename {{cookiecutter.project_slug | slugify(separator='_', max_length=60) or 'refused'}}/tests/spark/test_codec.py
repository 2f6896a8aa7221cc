"""Values to columns: what is sound arrives to the last digit, what is not keeps its row and says why."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark import codec_for, decoded

from pipeline.errors import BadSettings
from pipeline.flow.outputs import emit, output
from pipeline.flow.source import KEY
from pipeline.flow.usercode import RAW_SCHEMA, rows_of
from pipeline.local.malformed import UNDECODABLE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.flow.codec import Codec

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-micros"}
# Within a list: a required field, and a list in a map.
STOP = {
    "type": "record",
    "name": "Stop",
    "fields": [
        {"name": "city", "type": "string"},
        {"name": "at", "type": ["null", TIME]},
        {"name": "seen", "type": ["null", {"type": "map", "values": {"type": "array", "items": TIME}}]},
    ],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "amount", "type": DECIMAL},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": ["null", "string"]},
    {"name": "count", "type": ["null", "int"]},
    {"name": "ratio", "type": ["null", "double"]},
    {
        "name": "place",
        "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}],
    },
    {"name": "parts", "type": ["null", {"type": "array", "items": DECIMAL}]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["IN", "OUT"]}]},
    {"name": "code", "type": ["null", {"type": "fixed", "name": "Code", "size": 2}]},
    {"name": "times", "type": ["null", {"type": "array", "items": ["null", TIME]}]},
    {"name": "ratios", "type": ["null", {"type": "map", "values": "double"}]},
    {"name": "fees", "type": ["null", {"type": "map", "values": DECIMAL}]},
    {"name": "stops", "type": ["null", {"type": "array", "items": STOP}]},
]
DEEP: Any = "int"
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}
BROKEN = "not one JSON object of this schema"


@pytest.fixture
def schema(tmp_path: Path) -> Codec:
    """Return a schema of each kind of field."""
    return schema_of(tmp_path, {"type": "record", "name": "Event", "fields": FIELDS})


def schema_of(folder: Path, schema: Any) -> Codec:
    """Return what a schema file with this content describes."""
    path = folder / "event.avsc"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema), encoding="utf-8")
    return codec_for(path)


def event(**changed: str) -> bytes:
    """Return a sound event with these fields changed, as JSON text."""
    fields = {"id": '"e"', "amount": "1.10", "at": "1", **changed}
    return b"{%s}" % ",".join(f'"{name}":{text}' for name, text in fields.items()).encode()


def test_sound_values_arrive_to_the_last_digit(spark: SparkSession, schema: Codec) -> None:
    amounts = ["1.10", "0", "-0.01", "9999999999.99", "-9999999999.99", "1e2", "1.100", '"1.50"', "0.1"]
    rows = decoded(spark, schema, [event(amount=amount) for amount in amounts])
    assert [row["_source"]["error"] for row in rows] == [None] * len(rows)
    assert [row["amount"] for row in rows] == [Decimal(amount.strip('"')) for amount in amounts]
    assert {row["at"] for row in rows} == {datetime.fromtimestamp(0.001, UTC).replace(tzinfo=None)}


def test_fields_that_may_be_null_may_be_missing(spark: SparkSession, schema: Codec) -> None:
    full = event(note='"n"', count="7", place='{"city":"Bern"}', parts="[1.10,2]", more='{"unknown":[1]}')
    rows = decoded(spark, schema, [full, event(), event(note="null", count="null", place="null", parts="null")])
    assert [row["_source"]["error"] for row in rows] == [None, None, None]
    first, *others = [(row["note"], row["count"], row["place"], row["parts"]) for row in rows]
    assert first == ("n", 7, ("Bern",), [Decimal("1.10"), Decimal("2.00")])
    assert others == [(None, None, None, None)] * 2


def test_values_within_lists_and_maps_arrive_as_they_are(spark: SparkSession, schema: Codec) -> None:
    lists = {"times": "[0,null,253402300799999999]", "ratios": '{"a":1e308,"b":-0.5}', "fees": '{"a":1.10,"b":2}'}
    stops = '[{"city":"Bern","at":1,"seen":{"a":[0,1],"b":[]}},{"city":"Chur"}]'
    [row] = decoded(spark, schema, [event(**lists, stops=stops, day="2932896", kind='"IN"', code='"AAE="')])
    epoch, second = datetime(1970, 1, 1), datetime(1970, 1, 1, microsecond=1)  # noqa: DTZ001  Spark's rows have none
    assert row["_source"]["error"] is None
    assert row["times"] == [epoch, None, datetime.max]  # noqa: DTZ901
    assert row["ratios"] == {"a": 1e308, "b": -0.5}
    assert row["fees"] == {"a": Decimal("1.10"), "b": Decimal("2.00")}
    assert row["stops"] == [("Bern", second, {"a": [epoch, second], "b": []}), ("Chur", None, None)]
    assert (row["day"], row["kind"], row["code"]) == (date.max, "IN", b"\x00\x01")


def test_values_that_are_not_to_be_read_arrive_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    values = [b"", b"\x00\xff", None, b"{}"]
    codec = codec_for(tmp_path / "there is no schema", input="bytes")
    rows = decoded(spark, codec, values)
    assert [row["_source"]["error"] for row in rows] == [None] * len(values)
    assert [row["value"] for row in rows] == values
    assert codec.columns.names == ["value"]


def test_values_passed_on_as_they_are_take_one_step_for_each_record(spark: SparkSession, tmp_path: Path) -> None:
    codec = codec_for(tmp_path / "there is no schema", input="bytes")
    rows = rows_of(lambda events: events.withColumn("outputs", emit(output("out", key=KEY, value="value"))), codec)
    plan = rows(spark.createDataFrame([], RAW_SCHEMA))._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    text = plan.toString()
    # With another computed field in `_source`, Spark makes it an object of each record first, in a step of its own.
    assert text.count("Project [") == 1
    assert "struct(partition" not in text


STRICT = "duplicate keys, or not strict JSON"
BEYOND = "a time beyond the years 1 to 9999"
HALF = "half of a surrogate pair"
UNSOUND: dict[str, tuple[bytes | None, str | None]] = {
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
    "duplicate key": (event()[:-1] + b',"id":"f"}', STRICT),
    "duplicate key within": (event(more='{"a":[{"b":1,"b":2}]}'), STRICT),
    "infinite": (event(more="1e999"), None),
    "infinite number": (event(ratio="1e999"), "field ratio is too large"),
    "100,000 brackets": (b"[" * 100_000, BROKEN),
    "100,000 brackets within": (event(more="[" * 100_000 + "]" * 100_000), BROKEN),
    "5,000 digits": (event(at="9" * 5_000), BROKEN),
    "5,000 digits within": (event(more="9" * 5_000), BROKEN),
    "first half of a surrogate pair": (event(id=r'"\ud800"'), HALF),
    "second half of a surrogate pair": (event(id=r'"\udc00"'), HALF),
    "halves in the wrong order": (event(id=r'"\udc00\ud800"'), HALF),
    "whole surrogate pair": (event(id=r'"\ud83d\ude00"'), None),
    "escaped backslash": (event(id=r'"\\\\ud800"'), None),
    "year 10000": (event(at="253402300800000"), f"field at: {BEYOND}"),
    "year 10000 as a date": (event(day="2932897"), f"field day: {BEYOND}"),
    "date as text": (event(day='"2020-01-01"'), BROKEN),
    "symbol that is unknown": (event(kind='"UP"'), "field kind is not one of its symbols"),
    "fixed of another length": (event(code='"AAEC"'), "field code has not 2 bytes"),
    "year 10000 in a list": (event(times="[0,253402300800000000]"), f"field times: {BEYOND}"),
    "year 0 in a list": (event(times="[-62135596800000001]"), f"field times: {BEYOND}"),
    "infinite in a map": (event(ratios='{"a":1,"b":-1e999}'), "field ratios is too large"),
    "would be rounded in a map": (event(fees='{"a":1,"b":1.005}'), "field fees has too many decimals"),
    "would be rounded up to a digit too many": (event(amount="9999999999.995"), "field amount has too many decimals"),
    "null in a list": (event(parts="[1,null]"), "field parts holds a null"),
    "null in a map": (event(ratios='{"a":null}'), "field ratios holds a null"),
    "null among records": (event(stops="[null]"), "field stops holds a null"),
    "required is missing in a list": (event(stops='[{"city":"a"},{"at":1}]'), "field stops.city is missing"),
    "year 10000 within a list": (event(stops='[{"city":"a","at":253402300800000000}]'), f"field stops.at: {BEYOND}"),
    "year 10000 in a list in a map in a list": (
        event(stops='[{"city":"a"},{"city":"b","seen":{"x":[],"y":[0,253402300800000000]}}]'),
        f"field stops.seen: {BEYOND}",
    ),
    "null in a list in a map in a list": (
        event(stops='[{"city":"a","seen":{"x":[null]}}]'),
        "field stops.seen holds a null",
    ),
    "text for a time in a list": (event(times='[0,"1"]'), BROKEN),
    "text for a number in a map": (event(ratios='{"a":"x"}'), BROKEN),
    "too many digits in a list": (event(parts="[1,10000000000.00]"), BROKEN),
    "more than the limit": (event(id='"' + "x" * 1_048_577 + '"'), "limits: more than codec.max_bytes = 1048576"),
}


@pytest.mark.bad_input("JSON: NaN, a number beyond its type, 1e999, at any depth", "decode")
@pytest.mark.bad_input("JSON: duplicate keys, at any depth", "decode")
@pytest.mark.bad_input("JSON: 100,000 brackets, 5,000 digits", "decode")
@pytest.mark.bad_input("JSON: half of a surrogate pair", "decode")
@pytest.mark.bad_input("JSON: cut off, two values, anything behind the object, not UTF-8, byte order mark", "decode")
@pytest.mark.bad_input("JSON: time beyond the year 9999, decimal that would be rounded, at any depth", "decode")
@pytest.mark.bad_input("JSON: required field missing, null among items, unknown symbol, at any depth", "decode")
@pytest.mark.bad_input("JSON: more bytes than codec.max_bytes", "limits")
def test_an_unsound_value_keeps_its_row_and_says_why(spark: SparkSession, schema: Codec) -> None:
    values = [value for value, _ in UNSOUND.values()]
    rows = decoded(spark, schema, [*values, event()])
    assert [row["_source"]["offset"] for row in rows] == list(range(len(values) + 1))
    *errors, sound = [row["_source"]["error"] for row in rows]
    assert dict(zip(UNSOUND, errors, strict=True)) == {name: error for name, (_, error) in UNSOUND.items()}
    assert sound is None


def test_nothing_that_the_workload_calls_undecodable_is_decoded(spark: SparkSession, schema: Codec) -> None:
    rows = decoded(spark, schema, UNDECODABLE)
    assert None not in [row["_source"]["error"] for row in rows]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "not valid JSON"),
        ('"string"', "the schema must be a record"),
        ("12", "12 is no Avro type"),
        ("null", "null is no Avro type"),
        ({"type": "record", "name": "E"}, "needs fields, each with name and type"),
        ({"type": "record", "name": "E", "fields": [{"type": "string"}]}, "needs fields, each with name and type"),
        ({"type": "record", "name": "E", "fields": ["x"]}, "needs fields, each with name and type"),
        ({"type": "record", "fields": []}, "needs a name"),
        ({"name": "E"}, "is no Avro type"),
        ("[" * 100_000, "not valid JSON"),
        ({"type": "record", "name": "E", "fields": [{"name": "x", "type": DEEP}]}, "nested deeper than 64 levels"),
        *(
            ({"type": "record", "name": "E", "fields": fields}, line)
            for fields, line in [
                ([{"name": "x"}], "field x: null is no Avro type"),
                ([{"name": "x", "type": "text"}], 'field x: "text" is no Avro type'),
                ([{"name": "x", "type": "null"}], "field x: a type that is always null has no column"),
                ([{"name": "x", "type": ["null"]}], "field x: a type that is always null has no column"),
                ([{"name": "x", "type": ["null", "E"]}], "the type E contains itself"),
                ([{"name": "x", "type": ["int", "string"]}], "field x: a union of several types cannot be read from"),
                ([{"name": "x", "type": {"type": "fixed", "size": -3, "name": "F"}}], "field x: {"),
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
        codec_for(tmp_path / name)
