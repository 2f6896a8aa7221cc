"""Confluent's wire format, against a real HTTP server: each value by its own schema, no letter for a silent one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from tests.support.registry import FakeRegistry, running_registry
from tests.support.schemas import encode

from pipeline.avro import registry as module
from pipeline.avro.decode import Reader
from pipeline.avro.framed import FramedDecoder, head
from pipeline.avro.limits import FRAMING, SCHEMA_MISMATCH, STOP, UNKNOWN_SCHEMA, read
from pipeline.avro.registry import Away, Refused, Registry
from pipeline.flow.avro_values import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("confluent_kafka.schema_registry", reason="the extra `registry` is not installed")


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of a record."""
    made = [{"name": name, "type": kind, **({"default": more[name]} if name in more else {})} for name, kind in fields]
    return {"type": "record", "name": "Event", "fields": made}


OLD = record(("id", "int"), ("gone", "string"))
NEW = record(("id", "long"), ("note", ["null", "string"]), note=None)
OTHER = record(("name", "string"))


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """Return a registry that knows two versions."""
    with running_registry() as running:
        running.add(OLD)
        running.add(NEW)
        yield running


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)


def framed(number: int, schema: Any, value: Any) -> bytes:
    """Return a value in the wire format."""
    return head(number) + encode(fastavro.parse_schema(schema), value)


def decoder(server: FakeRegistry, seconds: float = 0.5) -> FramedDecoder:
    """Return a decoder that reads into the newer version."""
    return FramedDecoder(Reader.of(NEW), Registry(server.url, seconds))


def test_two_schema_versions_stand_side_by_side_record_by_record(server: FakeRegistry) -> None:
    values = [
        framed(1, OLD, {"id": row, "gone": "x"}) if row % 2 else framed(2, NEW, {"id": row, "note": f"{row}"})
        for row in range(100)
    ]
    [ids, notes], errors = decoder(server).decode(values)
    assert errors == [None] * 100
    assert ids.to_pylist() == list(range(100))
    assert notes.to_pylist() == [None if row % 2 else f"{row}" for row in range(100)]
    assert server.calls == {"GET /schemas/ids/1": 1, "GET /schemas/ids/2": 1}


@pytest.mark.bad_input("framed value shorter than 5 bytes, of another magic byte, or with a GUID", FRAMING)
@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\x01" + bytes(16), b'{"id": 1}'])
def test_a_value_that_is_not_framed_says_so(server: FakeRegistry, value: bytes) -> None:
    [error] = decoder(server).decode([value])[1]
    assert read(error or "")[0] == FRAMING
    assert not server.calls


@pytest.mark.bad_input("framed value whose schema is named by a GUID in the header __value_schema_id", FRAMING)
def test_a_value_whose_schema_is_named_in_a_header_is_never_read_by_another(server: FakeRegistry) -> None:
    value = framed(2, NEW, {"id": 1, "note": None})  # without its header it would be a sound one
    headers = [[("a", b"1")], [("a", b"1"), ("__value_schema_id", b"\x01" + bytes(16))], None, []]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    source = pa.StructArray.from_arrays([pa.array(headers, kind)], names=["headers"])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"k"] * 4), source, pa.array([value] * 4)], ["_key", "_source", "value"]
    )
    [found] = decoded(batch, decoder(server))
    errors = found.column(1).field("error").to_pylist()
    assert errors == [None, "framing: a schema named by a GUID, which is not supported", None, None]
    assert found.column(2).to_pylist() == [1, None, 1, 1]


@pytest.mark.bad_input("unknown schema id, a flood of them", UNKNOWN_SCHEMA)
def test_a_flood_of_an_unknown_schema_id_asks_the_registry_once_a_minute(server: FakeRegistry) -> None:
    clock = [1_000.0]
    made = FramedDecoder(Reader.of(NEW), Registry(server.url, 0.5, lambda: clock[0]))
    flood = [head(77) + b"\x02\x00"] * 1_000
    for _ in range(3):
        errors = made.decode(flood)[1]
    assert {read(error or "") for error in errors} == {(UNKNOWN_SCHEMA, "the registry has no schema 77")}
    assert server.calls == {"GET /schemas/ids/77": 1}
    clock[0] += module.UNKNOWN_SECONDS + 1
    made.decode(flood)
    assert server.calls == {"GET /schemas/ids/77": 2}


DEEP: Any = "int"
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.bad_input("schema that the reader's cannot read", SCHEMA_MISMATCH)
@pytest.mark.bad_input("schema nested 200 deep from the registry", SCHEMA_MISMATCH)
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (OTHER, "field id: the writer does not have it, and the reader has no default"),
        (record(("id", DEEP)), "nested deeper than 64 levels"),
    ],
)
def test_a_schema_that_cannot_be_read_makes_letters_of_its_records_alone(
    server: FakeRegistry, schema: Any, why: str
) -> None:
    number = server.add(schema)
    [error, sound] = decoder(server).decode([head(number) + b"\x02x", framed(2, NEW, {"id": 1, "note": None})])[1]
    reason, detail = read(error or "")
    assert reason == SCHEMA_MISMATCH
    assert why in detail
    assert sound is None


@pytest.mark.bad_input("framed value whose schema refers to others, or is not of Avro", SCHEMA_MISMATCH)
@pytest.mark.parametrize(
    ("remark", "why"),
    [
        (
            {"references": [{"name": "Money", "subject": "money", "version": 1}]},
            "its schema refers to others, which is not supported",
        ),
        ({"schemaType": "PROTOBUF"}, "its schema is of the type PROTOBUF"),
    ],
)
def test_a_schema_of_a_form_that_is_not_supported_is_named(
    server: FakeRegistry, remark: dict[str, Any], why: str
) -> None:
    number = server.add(record(("id", "long"), ("price", "int")))
    server.remarks[number] = remark
    [error, sound] = decoder(server).decode([head(number) + b"\x02\x02", framed(2, NEW, {"id": 1, "note": None})])[1]
    assert read(error or "") == (SCHEMA_MISMATCH, why)
    assert sound is None


@pytest.mark.bad_input("registry down, slow, or answering nonsense", "no dead letter: it waits, then stops")
@pytest.mark.parametrize("mood", ["down", "slow", "nonsense", "other 404", "other answer"])
def test_a_registry_that_does_not_answer_never_makes_a_dead_letter(server: FakeRegistry, mood: str) -> None:
    made = decoder(server)
    value = framed(1, OLD, {"id": 1, "gone": "x"})
    server.mood = mood
    [error] = made.decode([value])[1]
    assert read(error or "")[0] == STOP
    server.mood = "well"
    assert made.decode([value])[1] == [None], "nothing of it is remembered"


def test_a_registry_that_comes_back_in_time_is_waited_for(server: FakeRegistry) -> None:
    server.mood = "down"
    answers = iter(range(3))
    made = FramedDecoder(Reader.of(NEW), Registry(server.url, 30.0, lambda: recovered(server, answers)))
    assert made.decode([framed(1, OLD, {"id": 1, "gone": "x"})])[1] == [None]
    assert server.calls["GET /schemas/ids/1"] >= 2


def recovered(server: FakeRegistry, answers: Iterator[int]) -> float:
    """Let it be well again after some looks at the clock."""
    if next(answers, None) is None:
        server.mood = "well"
    return 1_000.0


def test_schemas_are_registered_and_looked_up_by_subject(server: FakeRegistry) -> None:
    known = Registry(server.url, 0.5)
    with pytest.raises(Refused, match="the registry has no schema out-value"):
        known.id_of("out-value", json.dumps(NEW))
    number = known.register("out-value", json.dumps(NEW))
    assert known.id_of("out-value", json.dumps(NEW)) == number
    server.mood = "down"
    with pytest.raises(Away, match=rf"schema registry {server.url}: no answer about other-value for 0.5 s"):
        Registry(server.url, 0.5).id_of("other-value", json.dumps(NEW))
