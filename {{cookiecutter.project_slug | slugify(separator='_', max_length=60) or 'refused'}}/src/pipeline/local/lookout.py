"""Looks at a running job from outside, through Kafka alone: how far it is, and whether a transaction is open.

Guarantee: read-only, and cheap enough to look many times a second without slowing what it looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.kafka import consumer_config
from pipeline.lanes.record import decode
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pipeline.lanes.record import LaneRecord
    from pipeline.settings import Settings

AT_ONCE = 100
POLL_SECONDS = 0.01


class Lookout:
    """Follows the lane topic and the ends of the output topics."""

    def __init__(self, settings: Settings) -> None:
        """Start at the beginning of the lane topic."""
        self._settings = settings
        self._topics = Topics(settings.output_bootstrap)
        self._partitions = self._topics.describe(settings.output.topics)
        self._lanes: dict[int, LaneRecord] = {}
        source = Topics(settings.source.bootstrap)
        lanes = range(source.one(settings.source.topic, "source topic").partitions)
        #: Committed end of the source, summed over its partitions.
        self.total = sum(source.offsets(settings.source.topic, lanes, OffsetSpec.latest()).values())
        self._consumer = Consumer(consumer_config(settings.output_bootstrap))
        starts = self._topics.offsets(settings.lane_topic, lanes, OffsetSpec.earliest())
        self._consumer.assign([TopicPartition(settings.lane_topic, lane, start) for lane, start in starts.items()])

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        self._consumer.close()

    def lanes(self) -> dict[int, LaneRecord]:
        """The lane records as committed by now."""
        while messages := self._consumer.consume(AT_ONCE, POLL_SECONDS):
            for message in messages:
                if message.error() is None:
                    self._lanes[message.partition()] = decode(message.value())
        return self._lanes

    def progress(self) -> int:
        """The sum of the lanes' next offsets, as committed by now."""
        return sum(lane.next_offset for lane in self.lanes().values())

    def open_transactions(self) -> list[str]:
        """Output partitions that end in an open transaction."""
        found = []
        for name, topic in self._partitions.items():
            partitions = range(topic.partitions)
            # In this order: a transaction that ends in between makes the end move on, never the stable offset fall.
            end = self._topics.offsets(name, partitions, OffsetSpec.latest(), committed=False)
            stable = self._topics.offsets(name, partitions, OffsetSpec.latest())
            found += [f"{name} [{partition}]" for partition in partitions if stable[partition] < end[partition]]
        return found
