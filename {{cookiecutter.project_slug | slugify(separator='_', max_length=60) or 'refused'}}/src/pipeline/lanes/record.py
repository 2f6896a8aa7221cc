"""The lane record: everything that is known of one lane, as the bytes of one Kafka record.

Guarantee: `decode(encode(record)) == record`, and bytes that this code does not understand fully (another version,
cut off, too long, contradicting themselves, of another lane) stop the job; they are never taken for a new lane.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import fastavro

from pipeline.errors import SafeStop
from pipeline.lanes.columns import BadColumns, Columns, read
from pipeline.lanes.token import Token, encode_token, read_token, token_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 2
TOKEN_VERSION = 3  # the body of version 2, and the token of the shuffled path behind it
# All that fastavro and struct were seen to raise on damaged bytes.
DAMAGED = (EOFError, ValueError, LookupError, ArithmeticError, TypeError, MemoryError, struct.error)


@dataclass(slots=True)
class Counters:
    """What happened in a lane since its genesis."""

    read: int = 0
    written: int = 0
    dropped: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    lost: int = 0  # offsets, not records: what stood there is not known any more
    transactions: int = 0  # committed ones that moved the lane on, with the one that carries this


COUNTERS = tuple(counter.name for counter in fields(Counters))


def added(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Sum two tables of counts; a count of 0 is kept out of the record."""
    sums = {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}
    return {name: count for name, count in sums.items() if count}


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """One lane at one moment; `topic_id` is Kafka's id of the source topic as its two longs."""

    app: str
    source_topic: str
    topic_id: tuple[int, int]
    partition: int
    run: int
    start_offset: int
    next_offset: int
    producers: Columns
    counters: Counters
    code_version: str
    token: Token | None = None

    @property
    def key(self) -> bytes:
        """The lane's name, which is the key of its records in the lane topic."""
        return lane_key(self.app, self.source_topic, self.partition)


def lane_key(app: str, topic: str, partition: int) -> bytes:
    """Name a lane: the key of its record, and also the transactional id that is its own."""
    return f"{app}.{topic}.{partition}".encode()


def encode(record: LaneRecord) -> bytes:
    """Write a lane record as one version byte and its Avro body."""
    counters = record.counters
    body = {
        "app": record.app,
        "source_topic": record.source_topic,
        "topic_id_high": record.topic_id[0],
        "topic_id_low": record.topic_id[1],
        "partition": record.partition,
        "run": record.run,
        "start_offset": record.start_offset,
        "next_offset": record.next_offset,
        "ledger": record.producers.written(),
        "read": counters.read,
        "written": counters.written,
        "dropped": counters.dropped,
        "verdicts": counters.verdicts,
        "dead_letters": counters.dead_letters,
        "lost": counters.lost,
        "transactions": counters.transactions,
        "code_version": record.code_version,
    }
    out = io.BytesIO()
    out.write(bytes((VERSION if record.token is None else TOKEN_VERSION,)))
    fastavro.schemaless_writer(out, _schema(), body)
    if record.token is not None:
        out.write(encode_token(record.token))
    return out.getvalue()


def decode(data: bytes, lane: bytes | None = None, *, ledger: bool = True) -> LaneRecord:
    """Read a lane record; with `lane`, the key it was found under, it must also be of that lane.

    Without `ledger` its producers are left out, unread: they take more time than all the rest.
    """
    name = "of unknown lane" if lane is None else lane.decode(errors="backslashreplace")
    if data[:1] not in {bytes((VERSION,)), bytes((TOKEN_VERSION,))}:
        found = f"version {data[0]}" if data else "no bytes at all"
        msg = (
            f"lane record {name}: {found}, but this code reads versions {VERSION} and {TOKEN_VERSION}; "
            "run the code version that wrote it or a newer one, do not delete the record"
        )
        raise SafeStop(msg)
    record = _decode_body(data, name, ledger=ledger)
    if lane is not None and record.key != lane:
        msg = (
            f"lane record {name}: holds the lane {record.key.decode()} instead; another app writes to this lane topic, "
            "or records were copied; give each app its own app.id and lane topic"
        )
        raise SafeStop(msg)
    return record


def _decode_body(data: bytes, name: str, *, ledger: bool) -> LaneRecord:
    source = io.BytesIO(data)
    source.seek(1)
    try:
        body: Any = fastavro.schemaless_reader(source, _schema(), None)
        token = read_token(source) if data[0] == TOKEN_VERSION else None
        record = _build(body, token, read(body["ledger"]) if ledger else Columns.of(()))
        fault = _fault(record, len(data) - source.tell())
    except BadColumns as error:
        fault = str(error)
    except DAMAGED as error:
        fault = f"{type(error).__name__} at byte {source.tell()} of {len(data)}"
    if fault:
        msg = (
            f"lane record {name}: damaged, {fault}; something else wrote to the lane topic, or it was altered: "
            "restore the topic from a copy, or find out who writes there; do not delete the record"
        )
        raise SafeStop(msg)
    return record


def _build(body: dict[str, Any], token: Token | None, producers: Columns) -> LaneRecord:
    return LaneRecord(
        app=body["app"],
        source_topic=body["source_topic"],
        topic_id=(body["topic_id_high"], body["topic_id_low"]),
        partition=body["partition"],
        run=body["run"],
        start_offset=body["start_offset"],
        next_offset=body["next_offset"],
        producers=producers,
        counters=Counters(*(body[name] for name in COUNTERS)),
        code_version=body["code_version"],
        token=token,
    )


def _fault(record: LaneRecord, left_over: int) -> str:
    """Say what contradicts itself in a record whose ledger is sound, or nothing."""
    if left_over:
        return f"{left_over} bytes too many"
    return "" if record.token is None else token_fault(record.token, record.partition, record.next_offset)


@cache
def _schema() -> Any:
    text = resources.files("pipeline.lanes").joinpath("lane_record.avsc").read_text(encoding="utf-8")
    return fastavro.parse_schema(json.loads(text))


def recreated(topic: str) -> str:
    """The line for a source topic whose id is not the one the lanes were provisioned for."""
    return (
        f"source topic {topic} was deleted and created anew: its offsets mean other records now; "
        f"give the job another app.id and provision it"
    )
