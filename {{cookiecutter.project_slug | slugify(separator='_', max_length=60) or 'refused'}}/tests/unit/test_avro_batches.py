"""Whole batches through fastavro: what is decoded into columns and encoded again is the same, for any schema."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile import schema
from tests.support.schemas import LOGICAL, encode, plainly, schemas, values

from pipeline.avro.compatible import mismatch
from pipeline.avro.decode import Decoder, Reader
from pipeline.avro.encode import Encoder
from pipeline.avro.node import BadSchema, tree


def struct_of(reader: Reader, columns: list[Any]) -> Any:
    """Return columns as the struct that the encoder takes."""
    return pa.StructArray.from_arrays(columns, fields=list(reader.type))


@settings(max_examples=200, deadline=2_000)
@given(st.data())
def test_any_schema_makes_the_round_trip_from_bytes_to_columns_to_values(data: st.DataObject) -> None:
    chosen = data.draw(schemas())
    given_values = data.draw(st.lists(plainly(chosen), max_size=12))
    reader = Reader.of(chosen)
    columns, errors = Decoder(reader).decode(given_values)
    assert errors == [None] * len(given_values)
    again, wrong = Encoder(chosen).encode(struct_of(reader, columns))
    assert wrong == errors
    parsed = fastavro.parse_schema(chosen)
    assert [plain(parsed, value) for value in again] == [plain(parsed, value) for value in given_values]


def plain(parsed: Any, value: bytes | None) -> Any:
    """Return what plain fastavro reads; two whole numbers of one union may be written by either branch."""
    return fastavro.schemaless_reader(io.BytesIO(value or b""), parsed, None, return_record_name=True)


@settings(max_examples=100, deadline=2_000)
@given(st.data())
def test_columns_hold_what_plain_fastavro_reads(data: st.DataObject) -> None:
    kinds = ["boolean", "int", "long", "double", "string", "bytes", "decimal", "date", "timestamp-micros"]
    chosen = schema(LOGICAL[data.draw(st.sampled_from(kinds))][0])
    parsed = fastavro.parse_schema(chosen)
    records = data.draw(st.lists(values(chosen), max_size=12))
    [column], errors = Decoder(Reader.of(chosen)).decode([encode(parsed, record) for record in records])
    assert errors == [None] * len(records)
    assert column.to_pylist() == [record["x"] for record in records]


OPTIONAL = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "x", "type": ["null", "int"]}, {"name": "y", "type": "int"}],
}


def column_of(kind: Any, arrow: Any, items: list[Any]) -> tuple[list[bytes | None], list[str | None]]:
    """Encode a column of one field."""
    return Encoder(schema(kind)).encode(pa.StructArray.from_arrays([pa.array(items, arrow)], names=["x"]))


@pytest.mark.parametrize(
    ("kind", "arrow", "good", "bad", "why"),
    [
        ("string", pa.string(), "a", None, "field x: null, but the schema requires it"),
        ({"type": "enum", "name": "K", "symbols": ["A"]}, pa.string(), "A", "B", "field x: not in the enum"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"abc", "field x: not 2 bytes long"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.timestamp("us", "UTC"),
            1_000,
            1_001,
            "field x: finer than milliseconds",
        ),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1], [1, None], "field x: null, but the schema"),
    ],
)
@pytest.mark.bad_input("output with a null where its schema requires a value, a symbol its enum lacks", "encode")
def test_a_row_that_does_not_fit_gets_an_error_and_its_neighbours_their_values(
    kind: Any, arrow: Any, good: Any, bad: Any, why: str
) -> None:
    found, errors = column_of(kind, arrow, [good, bad, good])
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1] is not None
    assert errors[1].startswith(f"encode: {why}")
    assert found[0] == found[2]
    assert (found[0] is None, found[1]) == (False, None)


def test_a_value_that_contains_the_mark_between_records_is_still_cut_rightly(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = bytes(range(16))
    monkeypatch.setattr("os.urandom", lambda _: mark)
    found, errors = column_of("bytes", pa.binary(), [b"a", mark, b"b" + mark * 2])
    assert errors == [None] * 3
    parsed = fastavro.parse_schema(schema("bytes"))
    assert [plain(parsed, value)["x"] for value in found] == [b"a", mark, b"b" + mark * 2]


@pytest.mark.parametrize("units", [0, 1, -1, 127, 128, -128, -129, 32_767, 32_768, -32_768, -32_769, 10**9])
def test_decimals_are_written_in_as_few_bytes_as_hold_them(units: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    value = Decimal(units).scaleb(-2)
    [found], _ = column_of(kind, pa.decimal128(10, 2), [value])
    assert found is not None
    assert plain(fastavro.parse_schema(schema(kind)), found) == {"x": value}
    shortest = next(size for size in range(1, 9) if -(1 << (8 * size - 1)) <= units < 1 << (8 * size - 1))
    assert len(found) == 1 + shortest


def test_an_empty_batch_is_an_empty_batch() -> None:
    columns, errors = Decoder(Reader.of(OPTIONAL)).decode([])
    assert ([len(column) for column in columns], errors) == ([0, 0], [])
    assert Encoder(OPTIONAL).encode(struct_of(Reader.of(OPTIONAL), columns)) == ([], [])


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        ("int", "long", None),
        ("long", "int", "field x: the writer has long, the reader int"),
        ("string", "bytes", None),
        (["null", "int"], ["null", "long"], None),
        (["null", "int"], "int", "field x: the writer has null, the reader int"),
        ("int", ["null", "int"], None),
        ("string", ["null", "int"], "field x: the writer's string is none of its types"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "field x: the writer has int"),
        (
            {"type": "enum", "name": "K", "symbols": ["A", "B"]},
            {"type": "enum", "name": "K", "symbols": ["A"]},
            "field x: the reader's enum lacks B",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            "another logical type",
        ),
    ],
)
def test_what_a_reader_cannot_read_is_told_with_its_field(writer: Any, reader: Any, why: str | None) -> None:
    found = mismatch(tree(schema(writer)), tree(schema(reader)))
    assert (found is None) if why is None else why in (found or "")


def test_a_union_of_two_logical_types_of_one_kind_has_no_column() -> None:
    kind = ["int", {"type": "long", "logicalType": "timestamp-millis"}]
    with pytest.raises(BadSchema, match="field x: a union of int and long with another logical type"):
        Reader.of(schema(kind))
