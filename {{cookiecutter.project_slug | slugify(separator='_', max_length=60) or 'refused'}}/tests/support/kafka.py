"""Small helpers around real topics: fresh names, creation, and reading to the end."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

# Bounds every wait of a test; a test that needs longer says so.
DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.05
QUIET = {"log_level": 0}


class Record(NamedTuple):
    """A record as a reader sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def fresh(prefix: str = "topic") -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


def wait_until(condition: Callable[[], object], deadline: float = DEADLINE_SECONDS, what: str = "") -> None:
    """Wait until the condition holds; fail after `deadline` seconds."""
    until = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > until:
            msg = f"not within {deadline} s: {what or getattr(condition, '__name__', condition)}"
            raise AssertionError(msg)
        time.sleep(LOOK_SECONDS)


def create_topic(
    bootstrap: str, name: str | None = None, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic (a fresh one where no name is given) and wait until every node tells of a leader for each part."""
    topic = name or fresh()
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    new = NewTopic(topic, num_partitions=partitions, config=dict(config or {}))
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)

    for server in bootstrap.split(","):
        node = AdminClient({"bootstrap.servers": server, **QUIET})
        wait_until(partial(_led, node, topic, partitions), what=f"every partition of {topic} has a leader")
    return topic


def _led(node: AdminClient, topic: str, partitions: int) -> bool:
    try:
        found = node.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions
    except KafkaException:  # the node is being started
        return False
    return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())


def read_committed(
    bootstrap: str, topic: str, deadline: float = DEADLINE_SECONDS, *, behind_open: bool = False
) -> list[Record]:
    """Return all records that a `read_committed` reader sees up to the end of every partition, by partition and offset.

    A commit is answered before its markers are written: a reader that stops at the last stable offset may miss what
    has just been committed, so this one goes on to the end of the log. Where a transaction is left open on purpose,
    `behind_open` leaves out what stands behind it; without it such a log is not read to its end, and the test fails.
    """
    return _read(bootstrap, topic, "read_committed", deadline, behind_open=behind_open)


def read_uncommitted(bootstrap: str, topic: str, deadline: float = DEADLINE_SECONDS) -> list[Record]:
    """Return all records up to the end of every partition, aborted and open ones too."""
    return _read(bootstrap, topic, "read_uncommitted", deadline)


def _read(bootstrap: str, topic: str, isolation: str, deadline: float, *, behind_open: bool = False) -> list[Record]:
    until = time.monotonic() + deadline
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh("reader"),
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # By default a reader waits half a second at the end of the log, and for its connections: most of a test.
            "fetch.wait.max.ms": 10,
            "enable.sparse.connections": False,
            **QUIET,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=deadline).topics[topic].partitions
        starts = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), deadline)[0] for number in partitions
        }
        consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
        return sorted(_to_the_end(consumer, set(partitions), until, behind_open=behind_open))
    finally:
        consumer.close()


def _to_the_end(consumer: Consumer, open_partitions: set[int], until: float, *, behind_open: bool) -> list[Record]:
    found: list[Record] = []
    while open_partitions:
        if time.monotonic() > until:
            msg = f"partitions {sorted(open_partitions)} were not read to their end in time"
            raise AssertionError(msg)
        message = consumer.poll(LOOK_SECONDS)
        if message is None:
            continue
        if error := message.error():
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
                raise KafkaException(error)
            if behind_open or message.offset() >= _end_of_log(consumer, message):
                open_partitions.discard(message.partition())
            continue
        headers = message.headers() or []
        position = (message.partition(), message.offset())
        found.append(Record(*position, message.key(), message.value(), headers, message.timestamp()[1]))
    return found


def _end_of_log(consumer: Consumer, message: Message) -> int:
    """Return the high watermark as of the last fetch: it counts the records of open transactions."""
    place = TopicPartition(message.topic(), message.partition())
    high: int = consumer.get_watermark_offsets(place, cached=True)[1]
    return high
