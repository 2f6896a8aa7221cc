"""The original bytes of source records that become dead letters, read again by their offsets.

Guarantee: key, value, headers and timestamp exactly as the log holds them, and no more of them in memory than was just
read. They do not travel through Spark: dead letters are rare, and carrying every record's raw bytes through user code
for their sake would cost every row.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import SafeStop
from pipeline.kafka import READ_BYTES, REQUEST_SECONDS, Fatal, consumer_config, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

AT_ONCE = 1_000
CONSUME_SECONDS = 0.02
# Reading on is cheaper than seeking while the next wanted record is nearer than this.
SEEK_BEYOND = 5_000


def originals(bootstrap: str, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Message]:
    """Fetch the records at these rising offsets, in order; one that is gone is an error, never a gap."""
    found: dict[int, Message] = {}
    if not offsets:
        return
    where = f"read again {topic} [{partition}]"
    wanted = set(offsets)
    position = -SEEK_BEYOND
    consumer = Consumer(consumer_config(bootstrap))
    try:
        for offset in offsets:
            if offset - position >= SEEK_BEYOND:
                with mapped(where):
                    consumer.assign([TopicPartition(topic, partition, offset)])
            while position < offset:
                position = _read_on(consumer, wanted, found, where)
            if offset not in found:
                msg = f"{where}: offset {offset} is no longer in the log (retention or compaction took it)"
                raise Fatal(msg)
            wanted.discard(offset)
            yield found.pop(offset)
    finally:
        consumer.close()


def _read_on(consumer: Consumer, wanted: set[int], found: dict[int, Message], where: str) -> int:
    """Consume what comes next, keep what is wanted, and return the last offset passed."""
    deadline = time.monotonic() + REQUEST_SECONDS
    # consume() waits for as many as it may return; so it is asked often, and each time takes what is there.
    while not (messages := consumer.consume(AT_ONCE, CONSUME_SECONDS)):
        if time.monotonic() > deadline:
            msg = f"{where}: nothing arrived within {REQUEST_SECONDS} s"
            raise Fatal(msg)
    for message in messages:
        error = message.error()
        if error is None:
            if message.offset() in wanted:
                found[message.offset()] = message
        elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
            _stop_if_bomb(error, min(wanted - found.keys()), where)
            _stop_if_deleted(consumer, message, min(wanted - found.keys()))
            with mapped(where):
                raise KafkaException(error)
    # At the end of the partition this is the end offset, so a wanted record that is missing is noticed.
    last: int = max(message.offset() for message in messages)
    return last


def _stop_if_bomb(error: KafkaError, offset: int, where: str) -> None:
    """A batch that no reader here will unpack fails again and again."""
    if error.code() == KafkaError._BAD_COMPRESSION:  # noqa: SLF001  librdkafka's local code
        msg = (
            f"{where}: the batch of offset {offset} cannot be unpacked, or to more than {READ_BYTES} bytes: see who "
            f"sent it; once it is deleted from the source (kafka-delete-records), `pipeline provision --accept-loss`"
        )
        raise SafeStop(msg)


def _stop_if_deleted(consumer: Consumer, message: Message, offset: int) -> None:
    """Tell a record that is gone for good from a leader that does not have it yet: only that is worth another try."""
    place = TopicPartition(message.topic(), message.partition())
    with mapped(f"find the first offset of {place.topic} [{place.partition}]"):
        first, _ = consumer.get_watermark_offsets(place, REQUEST_SECONDS)
    if offset < first:
        msg = (
            f"source topic {place.topic} [{place.partition}]: offsets {offset} to {first - 1} were deleted by "
            f"retention before they were written as dead letters; restore them, or accept the loss with "
            f"`pipeline provision --accept-loss`"
        )
        raise SafeStop(msg)
