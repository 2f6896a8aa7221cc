"""The records that are relayed, sent once and counted at the end: about 200 bytes of JSON, with identity headers.

A key is one of 10,000 accounts and lies where Java's partitioner puts it. Each 50th record (2 %) is a true repeat: the
same id, key and value as one of the last 900 on its partition. Producers count rising transactions. The same seed
makes the same records, but for the time in them.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from pipeline.errors import PipelineError
from pipeline.kafka import REQUEST_SECONDS, consumer_config
from pipeline.observe.audit.placement import POSITIVE, key_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from pipeline.lanes.topics import Topics

ACCOUNTS = 10_000
REPEAT_EVERY = 50
RECENT = 900
PRODUCERS = 16
# id, time in nanoseconds, account, amount.
VALUE = b'{"id":"e%010d","ts":%d,"acct":"%s","amt":%d,"cur":"EUR","kind":"transfer","pad":"' + b"x" * 96 + b'"}'
ID = slice(8, 18)
TIME_AT = 25
FLUSH_SECONDS = 300.0
SILENCE_SECONDS = 30.0
READ_AT_ONCE = 10_000
# A reader that is given more time waits for a full batch, also at the end of the log.
CONSUME_SECONDS = 0.1
LOOK_SECONDS = 0.05


class Made(NamedTuple):
    """One record."""

    partition: int
    key: bytes
    id: int
    value: bytes
    headers: list[tuple[str, bytes]]


def id_of(value: bytes) -> int:
    """The id in a value."""
    return int(value[ID])


def time_of(value: bytes) -> int:
    """The time in a value."""
    return int(value[TIME_AT : value.index(b",", TIME_AT)])


@dataclass
class Workload:
    """Makes records one after the other, and knows what has to come of them.

    As it is, each producer sends to all partitions. `apart`: each sends to one partition only, as devices do whose name
    is the key; then there may be many without each lane having to know all.
    """

    partitions: int
    producers: int = PRODUCERS
    apart: bool = False
    seed: int = 7
    made: int = 0
    distinct: int = 0
    _recent: list[list[tuple[bytes, int, bytes, bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Know where each key lies."""
        self._random = random.Random(self.seed).random  # noqa: S311  the same records in each run
        self._keys = [b"acct-%06d" % number for number in range(ACCOUNTS)]
        self._places = [(key_hash(key) & POSITIVE) % self.partitions for key in self._keys]
        self._recent = [[] for _ in range(self.partitions)]
        self._names = [b"p%d" % number for number in range(max(self.producers, self.partitions))]

    def make(self) -> Made:
        """The next record."""
        self.made += 1
        account = int(self._random() * ACCOUNTS)
        place = self._places[account]
        recent = self._recent[place]
        now = time.time_ns()
        if self.made % REPEAT_EVERY == 0 and recent:
            key, number, value, producer = recent[int(self._random() * len(recent))]
        else:
            key, number = self._keys[account], self.distinct
            self.distinct += 1
            value = VALUE % (number, now, key, int(self._random() * 100_000))
            producer = self._producer(number, place)
            kept = (key, number, value, producer)
            if len(recent) < RECENT:
                recent.append(kept)
            else:
                recent[number % RECENT] = kept
        headers = [("producer-id", producer), ("txn-id", b"%d" % number), ("seq", b"0")]
        return Made(place, key, number, value, headers)

    def _producer(self, number: int, place: int) -> bytes:
        if not self.apart:
            return self._names[number % self.producers]
        each = max(self.producers // self.partitions, 1)
        return self._names[number % each * self.partitions + place]


def create(topics: Topics, topic: str, partitions: int) -> None:
    """A topic that is not there yet; when it returns, each partition has its leader."""
    topics.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(REQUEST_SECONDS)
    deadline = time.monotonic() + REQUEST_SECONDS
    while not _is_led(topics, topic, partitions):
        if time.monotonic() > deadline:
            msg = f"{topic}: no leader for each of its partitions within {REQUEST_SECONDS} s"
            raise PipelineError(msg)
        time.sleep(LOOK_SECONDS)


def _is_led(topics: Topics, topic: str, partitions: int) -> bool:
    found = topics.admin.list_topics(topic, REQUEST_SECONDS).topics[topic].partitions.values()
    return len(found) == partitions and all(partition.leader >= 0 for partition in found)


def delete(topics: Topics, *names: str) -> None:
    """Topics that are needed no more: a long run would fill the disk."""
    for answer in topics.admin.delete_topics(list(names)).values():
        answer.result(REQUEST_SECONDS)


def fill(topics: Topics, topic: str, records: int, load: Workload, say: Callable[[str], None] = lambda _: None) -> None:
    """Create the topic and send the records; all of them are there when it returns."""
    create(topics, topic, load.partitions)
    started = time.monotonic()
    client = Producer(
        {
            "bootstrap.servers": topics.bootstrap,
            "linger.ms": 50,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
            "enable.idempotence": True,
        }
    )
    for number in range(1, records + 1):
        record = load.make()
        while True:
            try:
                client.produce(topic, record.value, record.key, record.partition, headers=record.headers)
            except BufferError:
                client.poll(0.05)
            else:
                break
        if number % READ_AT_ONCE == 0:
            client.poll(0)
            if number % 500_000 == 0:
                say(f"sent {number:,} of {records:,} records")
    if client.flush(FLUSH_SECONDS):
        msg = f"not all records reached {topic}"
        raise PipelineError(msg)
    os.sync()  # or the disk would still be at these records while somebody else's time is taken
    say(f"{topic}: {records:,} records, {load.distinct:,} distinct, in {time.monotonic() - started:.1f} s")


def stable_end(topics: Topics, topic: str, partitions: int) -> int:
    """The sum of the last stable offsets: how much of the topic a read_committed reader may read."""
    return sum(topics.offsets(topic, range(partitions), OffsetSpec.latest()).values())


def is_record(message: Message) -> bool:
    """Whether it is a record, not the end of a partition; any other error is raised."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
        raise KafkaException(error)
    return error is None


class Counted(NamedTuple):
    """What a read_committed reader found, against what was sent."""

    found: int
    lost: int
    duplicated: int


def count(bootstrap: str, topic: str, partitions: int, distinct: int) -> Counted:
    """Read the topic to its last stable offset, and count every id of 0 up to `distinct`."""
    seen = bytearray(distinct)
    found = 0
    open_partitions = set(range(partitions))
    consumer = Consumer(consumer_config(bootstrap))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in open_partitions])
    deadline = time.monotonic() + SILENCE_SECONDS
    with closing(consumer):
        while open_partitions:
            messages = consumer.consume(READ_AT_ONCE, CONSUME_SECONDS)
            if messages:
                deadline = time.monotonic() + SILENCE_SECONDS
            elif time.monotonic() > deadline:
                msg = f"{topic} {sorted(open_partitions)}: nothing to read for {SILENCE_SECONDS} s"
                raise PipelineError(msg)
            for message in messages:
                if is_record(message):
                    found += 1
                    seen[id_of(message.value())] = 1
                else:
                    open_partitions.discard(message.partition())
    once = sum(seen)
    return Counted(found, distinct - once, found - once)


def exact(bootstrap: str, topic: str, load: Workload) -> Counted:
    """Count, and fail if a record of the workload is missing or there twice: figures of such a run mean nothing."""
    counted = count(bootstrap, topic, load.partitions, load.distinct)
    if counted.lost or counted.duplicated:
        msg = f"{topic}: {counted.lost} records lost, {counted.duplicated} duplicated, of {load.distinct}"
        raise PipelineError(msg)
    return counted
