"""A tiny pipeline without Spark: what the real one must write, for tests of the audit.

It judges with the product's own ledger, cuts letters with its own `cut` and writes its own lane record, and the audit
must agree with all of them: so each checks the other.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pipeline.lanes.columns import Columns
from pipeline.lanes.identity import Identity, parse
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.letters import cut
from pipeline.lanes.recent import Verdict
from pipeline.lanes.record import Counters, LaneRecord, encode
from pipeline.lanes.sizes import size
from pipeline.local.payments import plan
from pipeline.observe.audit.model import CODEC
from pipeline.observe.audit.records import Ends, Record
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pipeline.observe.audit.claims import Lane
    from pipeline.observe.audit.records import Expected, Headers, Output

    Sent = tuple[str, bytes | None, bytes | None, Headers]

ALERT = 10_000
TOPIC_ID = (17, -4)
OUTPUT_PARTITIONS = 3
LIMIT = 1_048_588
IDENTITY = ("producer-id", "producer-epoch", "txn-id", "seq")


def settings_for(bootstrap: str = "localhost:9092", prefix: str = "", **dedup: Any) -> Settings:
    """Return settings whose topics begin with a prefix."""
    return build(
        {
            "app": {"id": "app"},
            "source": {"bootstrap": bootstrap, "topic": f"{prefix}payments"},
            "output": {
                "topics": (f"{prefix}receipts", f"{prefix}alerts"),
                "dead_letter_topic": f"{prefix}dead",
                "replication": 1,
            },
            "dedup": dedup,
        }
    )


def outputs_of(settings: Settings, value: bytes | None) -> list[Output] | str:
    """Do what the example's user function does, or say why it cannot; a value may begin with that reason itself."""
    told = (value or b"").partition(b":")[0].decode(errors="replace")
    if told in CODEC:
        return told
    try:
        payment = json.loads((value or b"").decode())
    except ValueError:
        return "decode"
    if not isinstance(payment, dict):
        return "decode"
    receipts, alerts = settings.output.topics
    key = payment["account"].encode()
    made: list[Output] = []
    if payment["amount"] > 0:
        made.append((receipts, key, f"{payment['id']} {payment['amount']}".encode(), [("kind", b"receipt")]))
    if payment["amount"] > ALERT:
        made.append((alerts, key, payment["id"].encode(), None))
    return made


def expected_outputs(settings: Settings, sources: Iterable[Record]) -> Callable[[], Iterator[Expected]]:
    """Ask the user function about every source record, duplicates and all."""
    return lambda: ((record.partition, record.offset, outputs_of(settings, record.value)) for record in sources)


@dataclass
class Written:
    """What one lane writes for its records."""

    sent: list[Sent] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    ledger: Ledger | None = None


def process(settings: Settings, records: Iterable[Record], limit: int = LIMIT) -> Written:
    """Judge the records of one lane and make its outputs and dead letters, in order."""
    lane = Written(ledger=Ledger(settings.dedup))
    verdicts: Counter[str] = Counter()
    letters: Counter[str] = Counter()
    for record in records:
        lane.counters.read += 1
        verdict, reason = _judge(lane, record)
        if reason == "stale" and settings.dedup.stale == "drop":
            reason = None
        made = outputs_of(settings, record.value) if verdict is Verdict.FRESH else []
        if verdict is not None:
            verdicts[verdict.value] += 1
        if isinstance(made, str):
            reason, made = made, []
        if reason is not None:
            letters[reason] += 1
            lane.sent.append(letter(settings, record, reason, limit))
        for topic, key, value, headers in made:
            lane.counters.written += 1
            lane.sent.append((topic, key, value, list(headers or ())))
        lane.counters.dropped += verdict is Verdict.FRESH and reason is None and not made
    lane.counters.verdicts, lane.counters.dead_letters = dict(verdicts), dict(letters)
    return lane


def _judge(lane: Written, record: Record) -> tuple[Verdict | None, str | None]:
    identity = identity_of(record.headers)
    if identity is None or lane.ledger is None:
        return None, "identity"
    content = blake2b(repr((record.key, record.value)).encode(), digest_size=8).digest()
    verdict = lane.ledger.judge(identity, int.from_bytes(content, signed=True))
    return verdict, None if verdict in {Verdict.FRESH, Verdict.DUPLICATE} else verdict.value


def identity_of(headers: Headers) -> Identity | None:
    """Read an identity as the product does; a header that stands there twice makes it malformed."""
    found = [(name, value) for name, value in headers if name in IDENTITY]
    values = dict(found)
    return parse(*map(values.get, IDENTITY)) if len(values) == len(found) else None


def letter(settings: Settings, record: Record, reason: str, limit: int) -> Sent:
    """Make the dead letter of a record, cut if its topic would not take it."""
    appended: Headers = [
        ("dead-letter-reason", reason.encode()),
        ("dead-letter-detail", b"why"),
        ("dead-letter-topic", settings.source.topic.encode()),
        ("dead-letter-partition", b"%d" % record.partition),
        ("dead-letter-offset", b"%d" % record.offset),
        ("dead-letter-timestamp", b"%d" % record.timestamp),
        ("dead-letter-version", b"1"),
    ]
    key, value, headers = record.key, record.value, record.headers
    if size(key, value, [*headers, *appended]) > limit:
        key, value, headers = cut(key, value, headers, limit - size(None, None, appended))
    return settings.output.dead_letter_topic, key, value, [*headers, *appended]


def lane_record(settings: Settings, lane: Written, **fields: Any) -> bytes:
    """Encode a lane record; at least its partition and next offset must be given."""
    values: dict[str, Any] = {
        "app": settings.app.id,
        "source_topic": settings.source.topic,
        "topic_id": TOPIC_ID,
        "run": 1,
        "start_offset": 0,
        "producers": lane.ledger.columns() if lane.ledger else Columns.of([]),
        "counters": lane.counters,
        "code_version": "1",
    }
    return encode(LaneRecord(**{**values, **fields}))


def source_log(count: int, seed: int, partitions: int) -> dict[int, list[Record]]:
    """Lay the workload out as a log: aborted records and the markers of transactions leave holes."""
    log: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
    ends = dict.fromkeys(log, 0)
    for batch in plan(count, seed=seed):
        touched = set()
        for _, key, value, headers in batch.events:
            partition = crc32(key or b"") % partitions
            touched.add(partition)
            if batch.commit:
                log[partition].append(Record(partition, ends[partition], 1_000 + len(touched), key, value, headers))
            ends[partition] += 1
        for partition in touched:
            ends[partition] += 1
    return log


@dataclass
class World:
    """Topics in memory, as an exact pipeline leaves them; tests then spoil something."""

    settings: Settings
    sources: dict[int, list[Record]]
    lanes: dict[int, Written] = field(default_factory=dict)
    lane_records: list[Record] = field(default_factory=list)
    topics: dict[str, dict[int, list[Record]]] = field(default_factory=dict)
    open: set[tuple[str, int]] = field(default_factory=set)
    asked: int = 0
    moves: bool = False
    firsts: dict[int, int] = field(default_factory=dict)
    limit: int = LIMIT

    @classmethod
    def exact(cls, settings: Settings, count: int = 600, seed: int = 1, partitions: int = 3, lost: int = 0) -> World:
        """Run the reference pipeline over the workload; partition 0 lost its first offsets before it was read."""
        world = cls(settings, source_log(count, seed, partitions), firsts={0: lost})
        world.sources[0] = [record for record in world.sources[0] if record.offset >= lost]
        world.run()
        return world

    def run(self) -> None:
        """Process all that is in the source."""
        settings = self.settings
        names = (*settings.output.topics, settings.output.dead_letter_topic)
        self.topics = {name: {number: [] for number in range(OUTPUT_PARTITIONS)} for name in names}
        for partition, records in self.sources.items():
            self.lanes[partition] = lane = process(settings, records, self.limit)
            lane.counters.lost = self.firsts.get(partition, 0)
            for topic, key, value, headers in lane.sent:
                self.append(topic, crc32(key or b"") % OUTPUT_PARTITIONS, key, value, headers)
            self.commit_lane(partition)

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Write one record at the end of a partition."""
        log = self.topics[topic][partition]
        log.append(Record(partition, 2 * len(log), 5, key, value, headers))

    def commit_lane(self, lane: int, **changes: Any) -> None:
        """Write a lane's record, with some fields changed."""
        name = self.settings.transactional_id(lane).encode()
        fields = {"partition": lane, "next_offset": self.end(lane), **changes}
        value = lane_record(self.settings, self.lanes[lane], **fields)
        self.lane_records.append(Record(lane, 2 * len(self.lane_records), 5, name, value, []))

    def end(self, partition: int) -> int:
        """Return where a source partition ends."""
        return self.sources[partition][-1].offset + 2

    def expected(self) -> Callable[[], Iterator[Expected]]:
        """Ask the user function about all that is in the source."""
        return expected_outputs(self.settings, [record for log in self.sources.values() for record in log])

    def source_partitions(self) -> Sequence[int]:
        """Return the partitions of the source topic."""
        return list(self.sources)

    def source_topic_id(self) -> tuple[int, int]:
        """Return the id of the source topic."""
        return TOPIC_ID

    def lane_log(self) -> Iterable[Record]:
        """Read all lane records."""
        return self.lane_records

    def gone(self, lane: Lane) -> int:
        """Count the offsets of a lane that retention took; it took everything up to `firsts`."""
        return max(min(self.firsts.get(lane.partition, 0), lane.next_offset) - lane.start_offset, 0)

    def source(self, lane: Lane) -> Iterable[Record]:
        """Read the source from the lane's start to its next offset."""
        log = self.sources[lane.partition]
        return (record for record in log if lane.start_offset <= record.offset < lane.next_offset)

    def written(self, topic: str) -> Iterable[Record]:
        """Read a topic that was written."""
        return (record for log in self.topics[topic].values() for record in log)

    def largest_letter(self) -> int:
        """Return the most bytes that the dead letter topic takes."""
        return self.limit

    def behind(self, lane: Lane) -> int:
        """Count what the lane has not read."""
        return sum(record.offset >= lane.next_offset for record in self.sources[lane.partition])

    def ends(self) -> dict[tuple[str, int], Ends]:
        """Return the ends of all that was written; an open transaction keeps readers one record short."""
        self.asked += 1
        grown = self.asked if self.moves else 0
        logs = {
            (topic, partition): len(log) for topic, parts in self.topics.items() for partition, log in parts.items()
        }
        logs[self.settings.lane_topic, 0] = len(self.lane_records)
        return {place: Ends(2 * size + grown - (place in self.open), 2 * size + grown) for place, size in logs.items()}
