"""Step 2, recall: the last committed lane record, and the end of its partition.

Guarantee: never "no record" for a lane that has one. The walk goes back from the end in growing steps, because
aborted records and markers may stand behind the last committed record; only PARTITION_EOF ends a read, and a read
that times out is an error. A deposed leader can still serve an old tail without any error: the compare-and-set of
step 5 catches that, so what is read here is a claim to be proven.

After a fence no transaction of the lane can stay open, but for a rival's that began since. Kafka 4.3.1 may never write
the markers it owes when all its brokers are killed (KAFKA-20734): then one hangs, and the end of any later transaction
in its partitions would decide over it as well. So a recall behind a fence stops before anything is written there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.address import made
from pipeline.errors import SafeStop, provision_if_new
from pipeline.kafka import REQUEST_SECONDS, Fatal, consumer_config, mapped

if TYPE_CHECKING:
    from pipeline.settings import Settings

FIRST_STEP = 2  # one committed record and its marker: the usual tail
GROWTH = 4
# A rival's transaction ends at its time-out; brokers look for those every 10 s, and the marker takes a moment.
HANGING_MARGIN_SECONDS = 15.0
LOOK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Recalled:
    """A lane record's bytes, and the offset at which the lane's next record must land."""

    value: bytes
    end: int
    by: str = ""  # the transactional id it was written under, unless that was the lane's own, or its marker was seen


def hanging_after(settings: Settings) -> float:
    """How many seconds after a fence a transaction that stays open in a lane can only be one that hangs."""
    return settings.transaction.timeout_ms / 1000 + HANGING_MARGIN_SECONDS


def recall(bootstrap: str, topic: str, partition: int, key: bytes, hanging_after: float | None = None) -> Recalled:
    """Read the lane record; a lane without one was never provisioned, or somebody deleted its history."""
    found = find(bootstrap, topic, partition, key, hanging_after)
    if found.value is None:
        msg = f"lane topic {topic} [{partition}] holds no record of {key.decode()}: {provision_if_new('lane')}"
        raise SafeStop(msg)
    return Recalled(found.value, found.end)


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at the end of a lane partition; no value in a lane that was never provisioned."""

    value: bytes | None
    end: int  # of what is committed or aborted: the last stable offset
    high: int  # of all: the high watermark, which is higher while a transaction is open


def find(bootstrap: str, topic: str, partition: int, key: bytes, hanging_after: float | None = None) -> Found:
    """Find the lane record. Behind a fence, which `hanging_after` says, a transaction that stays open stops the job."""
    found = since = _find(bootstrap, topic, partition, key)
    deadline = time.monotonic() + (hanging_after or 0.0)
    while hanging_after is not None and found.end < found.high:
        if found.end > since.end:  # it was a rival's, and is over
            since, deadline = found, time.monotonic() + hanging_after
        if time.monotonic() > deadline:
            raise SafeStop(_hanging(topic, partition, found))
        time.sleep(LOOK_AGAIN_SECONDS)
        found = _find(bootstrap, topic, partition, key)
    return found


def _hanging(topic: str, partition: int, found: Found) -> str:
    return (
        f"lane topic {topic} [{partition}]: a transaction hangs at offset {found.end}, the log ends at {found.high}: "
        f"its writer is gone, but the broker never wrote its marker (KAFKA-20734, after a kill of all brokers); "
        f'do what docs/runbook.md says under "Hanging transactions", then start again'
    )


def _find(bootstrap: str, topic: str, partition: int, key: bytes) -> Found:
    """Walk back from the end until a committed record of the lane is found or the log starts."""
    consumer = made(Consumer, consumer_config(bootstrap))
    where = f"recall {topic} [{partition}]"
    needs = f"Read on Topic {topic}"
    try:
        with mapped(where, needs):
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_SECONDS)
        step = FIRST_STEP
        while True:
            start = max(low, end - step)
            value, seen_end = _last(consumer, TopicPartition(topic, partition, start), key, where)
            if value is not None or start == low:
                # From the same answer as that end.
                high = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)[1]
                return Found(value, seen_end, high)
            step *= GROWTH
    finally:
        consumer.close()


def _last(consumer: Consumer, start: TopicPartition, key: bytes, where: str) -> tuple[bytes | None, int]:
    """The newest value under the key from `start` to the end of the partition, and that end."""
    with mapped(where):
        consumer.assign([start])
    value: bytes | None = None
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        message = consumer.poll(max(deadline - time.monotonic(), 0.0))
        if message is None:
            msg = f"{where}: no end of partition within {REQUEST_SECONDS} s; the leader does not answer"
            raise Fatal(msg)
        error = message.error()
        if error is None:
            if message.key() == key:
                value = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
            return value, message.offset()
        else:
            with mapped(where, f"Read on Topic {start.topic}"):
                raise KafkaException(error)
