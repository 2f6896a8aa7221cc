"""The original bytes of source records that become dead letters, read again by their offsets.

Guarantee: key, value, headers and timestamp exactly as the log holds them, and no more of them in memory than was just
read. They do not travel through Spark: dead letters are rare, and carrying every record's raw bytes through user code
for their sake would cost every row.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.address import made
from pipeline.errors import SafeStop
from pipeline.kafka import REQUEST_SECONDS, Fatal, consumer_config, mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

AT_ONCE = 1_000
CONSUME_SECONDS = 0.02
# Reading on is cheaper than seeking while the next wanted record is nearer than this.
SEEK_BEYOND = 5_000


class Packed(Exception):
    """The batch that begins at `base` cannot be unpacked, or to more than a reader takes."""

    def __init__(self, base: int) -> None:
        """All its records share this fate."""
        super().__init__(base)
        self.base = base


def originals(bootstrap: str, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Message | None]:
    """Fetch the records at these rising offsets, in order; one that is gone is an error, never a gap.

    None stands for a record whose batch cannot be unpacked: some kilobytes can be more than a worker has.
    """
    if not offsets:
        return
    with closing(made(Consumer, consumer_config(bootstrap))) as consumer:
        log = _Log(consumer, TopicPartition(topic, partition), set(offsets))
        packed_to = -1
        for place, offset in enumerate(offsets):
            if offset > packed_to:
                try:
                    message = log.read(offset)
                except Packed as batch:
                    packed_to = log.last_of(batch.base, offsets[place:])
            yield None if offset <= packed_to else message


class _Log:
    """One partition, read on or sought in."""

    def __init__(self, consumer: Consumer, place: TopicPartition, wanted: set[int]) -> None:
        self._consumer = consumer
        self._topic, self._partition = place.topic, place.partition
        self._where = f"read again {place.topic} [{place.partition}]"
        self._wanted = wanted
        self._found: dict[int, Message] = {}
        self._position = -SEEK_BEYOND
        self._sought = -1

    def read(self, offset: int) -> Message:
        """The record at an offset beyond the last one read."""
        if offset - self._position >= SEEK_BEYOND:
            self._seek(offset)
        while self._position < offset:
            try:
                self._read_on(offset)
            except Packed:
                if self._sought == offset:
                    raise
                self._seek(offset)  # the batch may end before it
        if offset not in self._found:
            msg = f"{self._where}: offset {offset} is no longer in the log (retention or compaction took it)"
            raise Fatal(msg)
        self._wanted.discard(offset)
        return self._found.pop(offset)

    def last_of(self, base: int, offsets: Sequence[int]) -> int:
        """The last of these rising offsets that stands in the same batch as the first one."""
        low, high = 0, len(offsets)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._base_at(offsets[middle]) == base else (low, middle)
        self._position = -SEEK_BEYOND
        return offsets[low]

    def _base_at(self, offset: int) -> int | None:
        """Where the batch of an offset begins, if it cannot be unpacked."""
        self._seek(offset)
        try:
            self._read_on(offset)
        except Packed as batch:
            return batch.base
        return None

    def _seek(self, offset: int) -> None:
        with mapped(self._where, f"Read on Topic {self._topic}"):
            self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        self._sought = offset

    def _read_on(self, target: int) -> None:
        """Consume what comes next, keep what is wanted, and note the last offset passed."""
        deadline = time.monotonic() + REQUEST_SECONDS
        # consume() waits for as many as it may return; so it is asked often, and each time takes what is there.
        while not (messages := self._consumer.consume(AT_ONCE, CONSUME_SECONDS)):
            if time.monotonic() > deadline:
                msg = f"{self._where}: nothing arrived within {REQUEST_SECONDS} s"
                raise Fatal(msg)
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() in self._wanted:
                    self._found[message.offset()] = message
            elif error.code() == KafkaError._BAD_COMPRESSION:  # noqa: SLF001  librdkafka's local code
                if message.offset() <= target:
                    raise Packed(message.offset())
                self._position = message.offset() - 1  # what stands before it has come
                return
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                _stop_if_deleted(self._consumer, message, min(self._wanted - self._found.keys()))
                with mapped(self._where, f"Read on Topic {self._topic}"):
                    raise KafkaException(error)
        # At the end of the partition this is the end offset, so a wanted record that is missing is noticed.
        self._position = max(message.offset() for message in messages)


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
