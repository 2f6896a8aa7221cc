"""The reference table: the newest value of each key of a compacted topic, at a known position.

Guarantee: the table is a function of the position alone, as long as the topic still holds what stood below it; its
digest tells. A tombstone deletes its key. Only committed records count, and only the position that was asked for ends
a read: silence is an error, never an empty table.
"""

from __future__ import annotations

import time
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.address import made
from pipeline.errors import SafeStop
from pipeline.kafka import REQUEST_SECONDS, Fatal, consumer_config, mapped
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from pipeline.lanes.topics import Topic
    from pipeline.settings import Settings


class Table:
    """Keys and values, and the offsets up to which the topic was read."""

    def __init__(self, settings: Settings) -> None:
        """Empty; nothing is read yet."""
        self._bootstrap = settings.source.bootstrap
        self._topic = settings.reference.topic
        self._most = settings.reference.max_keys
        self._topics = Topics(self._bootstrap)
        self._id = self._now().id
        self.items: dict[bytes, bytes] = {}
        self.position: dict[int, int] = {}
        self.version = 0  # raised by each change, for those who keep something made of it

    def refresh(self) -> None:
        """Read on to the end of what is committed now, in all partitions that the topic has by now."""
        now = self._now()
        if now.id != self._id:
            msg = (
                f"reference topic {self._topic} was deleted and created anew while the job ran: what was read of it "
                "says nothing of what it holds now; start again, to read it from its beginning"
            )
            raise SafeStop(msg)
        self._read_to(self._topics.offsets(self._topic, range(now.partitions), OffsetSpec.latest()))

    def _now(self) -> Topic:
        return self._topics.one(self._topic, "reference topic")

    def rebuild(self, position: Mapping[int, int]) -> None:
        """Read from the beginning to a position of the past."""
        self.items, self.position = {}, {}
        self.version += 1
        self._read_to(position)

    @property
    def digest(self) -> str:
        """Of all keys and values."""
        made = sha256()
        for key, value in sorted(self.items.items()):
            made.update(b"%d:%d:%b%b" % (len(key), len(value), key, value))
        return made.hexdigest()

    def _read_to(self, ends: Mapping[int, int]) -> None:
        for message in self._messages(ends):
            key, value = message.key(), message.value()
            self.version += 1
            if key is None:
                continue  # nobody could ask for it
            if value is None:
                self.items.pop(key, None)
            else:
                self.items[key] = value
        self.position = {**self.position, **ends}
        if len(self.items) > self._most:
            msg = (
                f"reference topic {self._topic} has {len(self.items)} keys, but reference.max_keys = {self._most}: "
                f"each task gets the whole table; raise it if the workers have the memory"
            )
            raise SafeStop(msg)

    def _messages(self, ends: Mapping[int, int]) -> Iterator[Message]:
        starts = {number: self.position.get(number, OFFSET_BEGINNING) for number in ends}
        waiting = {number for number, end in ends.items() if self.position.get(number, 0) < end}
        if not waiting:
            return
        where, needs = f"reference topic {self._topic}", f"Read on Topic {self._topic}"
        with closing(made(Consumer, consumer_config(self._bootstrap))) as consumer:
            with mapped(where, needs):
                consumer.assign([TopicPartition(self._topic, number, starts[number]) for number in waiting])
            deadline = time.monotonic() + REQUEST_SECONDS
            while waiting:
                message = consumer.poll(max(deadline - time.monotonic(), 0.0))
                if message is None:
                    msg = f"{where}: no answer within {REQUEST_SECONDS} s"
                    raise Fatal(msg)
                deadline = time.monotonic() + REQUEST_SECONDS
                error, number = message.error(), message.partition()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's code
                    with mapped(where, needs):
                        raise KafkaException(error)
                if error is None and number in waiting and message.offset() < ends[number]:
                    yield message
                if message.offset() + (error is None) >= ends[number]:
                    waiting.discard(number)
