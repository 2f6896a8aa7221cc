"""Reads back what one upstream producer has committed to a topic: its newest record in each partition.

Guarantee: after a fence the answer is whole. A read ends at the end that the partition had when it began, never at a
time-out; and while the open transaction of another producer hides the tail, it waits, since committed
records may stand behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pipeline.committed import committed, headers_of
from pipeline.errors import PipelineError
from pipeline.kafka import LEADER_MOVES, REQUEST_SECONDS, consumer_config, reachable, while_leaders_move
from pipeline.lanes.identity import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from pipeline.sections import Identity as Names

# What the caller's configuration says about the way to the cluster; the rest of it is about producing.
CONNECTION = (
    "bootstrap.servers",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "https.",
    "socket.",
    "broker.",
    "client.id",
    "log_level",
)
FIRST_STEP = 64
GROWTH = 8
# A leader that was just elected, also that of a new topic, is named to clients before it answers them.
MOVING = LEADER_MOVES | {KafkaError.UNKNOWN_TOPIC_OR_PART}


class Stamp(NamedTuple):
    """One committed record of the producer."""

    offset: int
    epoch: int
    txn: int


class Look(NamedTuple):
    """The newest stamp of each partition that has one, and where each partition began and ended."""

    stamps: dict[int, Stamp]
    starts: dict[int, int]
    ends: dict[int, int]


class OwnLog:
    """The committed records of one producer id in one topic."""

    def __init__(self, config: Mapping[str, Any], topic: str, producer_id: str, names: Names) -> None:
        """Keep what is needed to connect; nothing is opened yet."""
        self._config = {name: value for name, value in config.items() if name.startswith(CONNECTION)}
        self._bootstrap = config["bootstrap.servers"]
        self._topic = topic
        self._producer_id = producer_id
        self._names = names

    def newest(self, known: Mapping[int, int]) -> Look:
        """Walk back from the end of each partition in growing steps to a record of the producer, or to `known`."""
        starts, ends = self.bounds()
        floors = {partition: max(start, known.get(partition, 0)) for partition, start in starts.items()}
        unread = {partition: end for partition, end in ends.items() if end > floors[partition]}
        stamps: dict[int, Stamp] = {}
        step = FIRST_STEP
        while unread:
            windows = {partition: (max(floors[partition], end - step), end) for partition, end in unread.items()}
            stamps |= self._read(windows)
            unread = {
                partition: start
                for partition, (start, _) in windows.items()
                if partition not in stamps and start > floors[partition]
            }
            step *= GROWTH
        return Look(stamps, starts, ends)

    def bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return start and end of each partition; the end counts open transactions, too."""
        config = consumer_config(self._bootstrap, self._producer_id, isolation="read_uncommitted")
        consumer = Consumer({**config, **self._config})
        try:
            with reachable(self._bootstrap, f"offsets of {self._topic}"):
                found = consumer.list_topics(self._topic, REQUEST_SECONDS).topics[self._topic]
                if found.error is not None:
                    msg = f"{self._topic}: {found.error.str()} (cluster {self._bootstrap}); create the topic first"
                    raise PipelineError(msg)
                marks = {partition: self._marks(consumer, partition) for partition in found.partitions}
        finally:
            consumer.close()
        return {place: start for place, (start, _) in marks.items()}, {place: end for place, (_, end) in marks.items()}

    def _marks(self, consumer: Consumer, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        low, high = while_leaders_move(
            lambda: consumer.get_watermark_offsets(place, REQUEST_SECONDS),
            lambda: consumer.list_topics(self._topic, REQUEST_SECONDS),
            REQUEST_SECONDS,
            MOVING,
        )
        return low, high

    def _read(self, windows: Mapping[int, tuple[int, int]]) -> dict[int, Stamp]:
        """Return the newest stamp within the window [start, end) of each partition."""
        stamps: dict[int, Stamp] = {}
        config = {**consumer_config(self._bootstrap, self._producer_id), **self._config}
        for message in committed(config, self._topic, windows):
            stamp = self._stamp(message)
            if stamp is not None:
                stamps[message.partition()] = stamp
        return stamps

    def _stamp(self, message: Message) -> Stamp | None:
        found = dict(headers_of(message) or ())
        names = self._names
        identity = parse(
            *(found.get(name) for name in (names.producer_id, names.producer_epoch, names.txn_id, names.seq)),
        )
        if identity is None or identity.producer_id != self._producer_id:
            return None
        return Stamp(message.offset(), identity.epoch, identity.txn)
