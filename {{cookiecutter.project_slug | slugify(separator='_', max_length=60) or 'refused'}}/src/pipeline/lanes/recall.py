"""Step 2, recall: the last committed lane record, and the end of its partition.

Guarantee: never "no record" for a lane that has one. The walk goes back from the end in growing steps, because
aborted records and markers may stand behind the last committed record; only PARTITION_EOF ends a read, and a read
that times out is an error. A deposed leader can still serve an old tail without any error: the compare-and-set of
step 5 catches that, so what is read here is a claim to be proven.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import SafeStop
from pipeline.kafka import REQUEST_SECONDS, Fatal, consumer_config, mapped

FIRST_STEP = 2  # one committed record and its marker: the usual tail
GROWTH = 4


@dataclass(frozen=True, slots=True)
class Recalled:
    """A lane record's bytes, and the offset at which the lane's next record must land."""

    value: bytes
    end: int


def recall(bootstrap: str, topic: str, partition: int, key: bytes) -> Recalled:
    """Read the lane record; a lane without one was never provisioned, or somebody deleted its history."""
    found = find(bootstrap, topic, partition, key)
    if found.value is None:
        msg = (
            f"lane topic {topic} [{partition}] holds no record of {key.decode()}: run `pipeline provision` if this is "
            f"a new lane; if it is not, its history was deleted and a restart would repeat its output"
        )
        raise SafeStop(msg)
    return Recalled(found.value, found.end)


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at the end of a lane partition; no value in a lane that was never provisioned."""

    value: bytes | None
    end: int


def find(bootstrap: str, topic: str, partition: int, key: bytes) -> Found:
    """Walk back from the end until a committed record of the lane is found or the log starts."""
    consumer = Consumer(consumer_config(bootstrap))
    where = f"recall {topic} [{partition}]"
    try:
        with mapped(where):
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_SECONDS)
        step = FIRST_STEP
        while True:
            start = max(low, end - step)
            value, seen_end = _last(consumer, TopicPartition(topic, partition, start), key, where)
            if value is not None or start == low:
                return Found(value, seen_end)
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
            with mapped(where):
                raise KafkaException(error)
