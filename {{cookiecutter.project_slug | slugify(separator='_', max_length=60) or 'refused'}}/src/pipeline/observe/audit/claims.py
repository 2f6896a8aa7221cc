"""What the lane records claim: where each lane began, how far it is, and what it counted.

Guarantee: read by the audit's own code from the schema file alone; what is not understood to its last byte, or not of
this app, ends the audit. The ledger in a record is not believed: the model computes it anew.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

import fastavro

from pipeline.errors import PipelineError, provision_if_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipeline.observe.audit.records import Ends, Record
    from pipeline.settings import Settings

LANE_VERSION = 2
TOKEN_VERSION = 3  # the same, and a token of the shuffled path behind it
# All that fastavro and struct were seen to raise on damaged bytes.
DAMAGED = (EOFError, ValueError, LookupError, ArithmeticError, TypeError, MemoryError, struct.error)


@dataclass(frozen=True)
class Lane:
    """One lane record, without its ledger."""

    app: str
    source_topic: str
    topic_id: tuple[int, int]
    partition: int
    run: int
    start_offset: int
    next_offset: int
    read: int
    written: int
    dropped: int
    verdicts: Mapping[str, int]
    dead_letters: Mapping[str, int]
    lost: int
    token: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The lane as logs, keys and transactional ids name it."""
        return f"{self.app}.{self.source_topic}.{self.partition}"


class Topics(Protocol):
    """What the audit reads: committed records only, each partition in offset order."""

    def source_partitions(self) -> Sequence[int]:
        """Return the partitions of the source topic."""
        ...

    def source_topic_id(self) -> tuple[int, int]:
        """Return Kafka's id of the source topic, as its two longs."""
        ...

    def lane_log(self) -> Iterable[Record]:
        """Read all lane records."""
        ...

    def gone(self, lane: Lane) -> int:
        """Count the offsets from the lane's start to its next offset that the source no longer holds."""
        ...

    def source(self, lane: Lane) -> Iterable[Record]:
        """Read the source from the lane's start to its next offset, but for what was lost before the lane read it."""
        ...

    def written(self, topic: str) -> Iterable[Record]:
        """Read an output topic, or that of the dead letters."""
        ...

    def largest_letter(self) -> int:
        """Return the most bytes that the dead letter topic takes in one record."""
        ...

    def behind(self, lane: Lane) -> int:
        """Count the source records from the lane's next offset on."""
        ...

    def ends(self) -> Mapping[tuple[str, int], Ends]:
        """Return the ends of all partitions the app writes to."""
        ...


class Claims:
    """The newest record of each lane, and whether its history only ever went forward."""

    def __init__(self, settings: Settings, topics: Topics) -> None:
        """Read the whole lane topic; each partition of the source must have its lane."""
        self.newest: dict[int, Lane] = {}
        self.wrong: list[str] = []
        self._settings = settings
        for record in topics.lane_log():
            self._follow(record)
        topic_id = topics.source_topic_id()
        for partition in topics.source_partitions():
            self._check(partition, topic_id)

    def _follow(self, record: Record) -> None:
        where = f"{self._settings.lane_topic}, partition {record.partition}, offset {record.offset}"
        lane = decode_lane(record.value, where)
        name = self._settings.transactional_id(record.partition)
        if lane.name != name or record.key != name.encode():
            msg = f"{where}: holds lane {lane.name} instead of {name}; give each app its own app.id and lane topic"
            raise PipelineError(msg)
        before = self.newest.get(record.partition, lane)
        for field in ("next_offset", "run"):
            if getattr(lane, field) < getattr(before, field):
                change = f"{getattr(before, field)} to {getattr(lane, field)}"
                self.wrong.append(f"{lane.name}: {field} fell from {change} (lane offset {record.offset})")
        self.newest[record.partition] = lane

    def _check(self, partition: int, topic_id: tuple[int, int]) -> None:
        topic = self._settings.source.topic
        lane = self.newest.get(partition)
        if lane is None:
            missing = f"{self._settings.lane_topic}: no record of lane {partition} of {topic}"
            msg = f"{missing}: {provision_if_new('lane')}"
            raise PipelineError(msg)
        if lane.topic_id != topic_id:
            msg = f"{topic}: was deleted and created anew since its lanes began; what they wrote cannot be audited"
            raise PipelineError(msg)


def decode_lane(data: bytes | None, where: str) -> Lane:
    """Read a lane record; whatever cannot be understood to its last byte ends the audit."""
    if data is None or data[:1] not in {bytes((LANE_VERSION,)), bytes((TOKEN_VERSION,))}:
        found = "a tombstone" if data is None else f"version {data[0]}" if data else "empty"
        versions = f"{LANE_VERSION} or {TOKEN_VERSION}"
        msg = f"{where}: not a lane record of version {versions}, but {found}; audit with the code that wrote it"
        raise PipelineError(msg)
    source = io.BytesIO(data)
    source.seek(1)
    try:
        body: Any = fastavro.schemaless_reader(source, _schema("lane_record"), None)
        token: Any = None
        if data[0] == TOKEN_VERSION:
            token = fastavro.schemaless_reader(source, _schema("token"), None)
    except DAMAGED as error:
        msg = f"{where}: damaged lane record ({type(error).__name__} at byte {source.tell()}); see who writes there"
        raise PipelineError(msg) from error
    if source.tell() != len(data):
        msg = f"{where}: damaged lane record ({len(data) - source.tell()} bytes too many); see who writes there"
        raise PipelineError(msg)
    return _lane(body, token)


def _lane(body: Any, token: Any) -> Lane:
    return Lane(
        app=body["app"],
        source_topic=body["source_topic"],
        topic_id=(body["topic_id_high"], body["topic_id_low"]),
        partition=body["partition"],
        run=body["run"],
        start_offset=body["start_offset"],
        next_offset=body["next_offset"],
        read=body["read"],
        written=body["written"],
        dropped=body["dropped"],
        verdicts=body["verdicts"],
        dead_letters=body["dead_letters"],
        lost=body["lost"],
        token=token,
    )


@cache
def _schema(name: str) -> Any:
    text = resources.files("pipeline.lanes").joinpath(f"{name}.avsc").read_text(encoding="utf-8")
    return fastavro.parse_schema(json.loads(text))
