"""Lag: how far the lanes are behind, for the metrics and for other tools.

Guarantee: for show only. Lag counts to the last stable offset, so it is 0 when caught up, also behind control records
and open transactions. The consumer group holds every lane's next offset after each batch and at the end; nothing is
ever read back from it. All of it happens beside the batches, and a failure here is logged, never fatal.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.address import made
from pipeline.kafka import REQUEST_SECONDS, consumer_config, reachable
from pipeline.lanes.topics import Topics
from pipeline.observe.background import Background

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.metrics import Metrics
    from pipeline.observe.progress import Batch
    from pipeline.settings import Settings

POLL_SECONDS = 3.0
# Again without news: the broker forgets offsets of a silent group, and a copy of the job may have published older ones.
PUBLISH_SECONDS = 60.0
# How long a poll may look for the oldest unread records; lanes that took longer are looked at again by the next one.
UNREAD_SECONDS = 2.0
NOTHING_UNREAD = math.inf  # a timestamp that is never past: only control records and aborted ones are ahead

Ends = dict[tuple[str, int], int]


class GroupProgress(Background):
    """Publishes every lane's next offset; idle ones too, since the broker forgets offsets it has not heard of."""

    def __init__(self, settings: Settings) -> None:
        """Without subscribing: the group has no members, only offsets."""
        super().__init__("group", PUBLISH_SECONDS)
        self._topic = settings.source.topic
        self._config = consumer_config(settings.source.bootstrap, settings.group)
        self._consumer: Consumer | None = None
        self._offsets: dict[int, int] = {}
        self._published: dict[int, int] = {}

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:  # noqa: ARG002  one face for all watchers
        """Publish where the lanes stand."""
        self._note_offsets(lanes)
        self.start()

    def on_batch(self, batch: Batch) -> None:
        """Publish where the batch has brought them."""
        self._note_offsets(batch.lanes)
        self.wake()

    def _note_offsets(self, lanes: Mapping[int, LaneRecord]) -> None:
        self._offsets = {**self._offsets, **{partition: lane.next_offset for partition, lane in lanes.items()}}

    def work(self) -> None:
        """Commit the newest offsets; what a busy thread has passed over was older."""
        newest = self._offsets
        if self._closing and newest == self._published:
            return
        if self._consumer is None:
            self._consumer = made(Consumer, self._config)
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in newest.items()]
        for answer in self._consumer.commit(offsets=offsets, asynchronous=False):
            if answer.error is not None:
                raise KafkaException(answer.error)
        self._published = newest

    def end(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            self._consumer.close()


@dataclass(frozen=True)
class Polled:
    """What the clusters said at one moment."""

    at: float
    stable: Mapping[int, int]  # last stable offset by source partition
    open: Ends  # offsets behind an open transaction, by topic and partition
    oldest: Mapping[int, float] = field(default_factory=dict)  # timestamp of the oldest unread record, of lanes behind


class Poller(Background):
    """Asks the clusters every few seconds, also while a batch runs: that is when lag matters."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Nothing is connected before the lanes are taken over."""
        super().__init__("poll", POLL_SECONDS)
        self._settings = settings
        self._metrics = metrics
        self._topics: dict[str, Topics] = {}
        self._unread: Unread | None = None

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:  # noqa: ARG002  one face for all watchers
        """Begin."""
        self.start()

    def on_batch(self, batch: Batch) -> None:
        """Nothing: a scrape compares the last poll with the lanes of now."""

    def work(self) -> None:
        """One poll, handed to the metrics as a whole."""
        if self._closing:
            return
        settings, lag = self._settings, self._metrics.lag
        written = (*settings.output.topics, settings.output.dead_letter_topic, settings.lane_topic)
        ends, stable = self._ends(settings.source.bootstrap, (settings.source.topic,))
        for found, known in zip(self._ends(settings.output_bootstrap, written), (ends, stable), strict=True):
            known.update(found)
        polled = Polled(
            time.time(),
            {partition: offset for (topic, partition), offset in stable.items() if topic == settings.source.topic},
            {place: max(end - stable[place], 0) for place, end in ends.items() if place in stable},
        )
        before = lag.polled.oldest if lag.polled is not None else {}
        lag.polled = Polled(polled.at, polled.stable, polled.open, self._oldest(polled, before))

    def end(self) -> None:
        """Disconnect."""
        if self._unread is not None:
            self._unread.close()

    def _ends(self, bootstrap: str, names: Iterable[str]) -> tuple[Ends, Ends]:
        """High watermarks, then last stable offsets: in this order a difference is a transaction that was open."""
        topics = self._topics.setdefault(bootstrap, Topics(bootstrap))
        places = [
            TopicPartition(topic.name, partition)
            for topic in topics.describe(names).values()
            for partition in range(topic.partitions)
        ]
        isolations = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        ends, stable = (_offsets(topics, places, isolation) for isolation in isolations)
        return ends, stable

    def _oldest(self, polled: Polled, before: Mapping[int, float]) -> dict[int, float]:
        """Timestamps of the oldest unread records of the lanes behind; of one not found in time, the earlier one."""
        behind = [partition for partition, lag in self._metrics.lag.records(polled).items() if lag]
        if not behind:
            return {}
        if self._unread is None:
            self._unread = Unread(self._settings)
        offsets = self._metrics.lanes.next_offsets
        found = self._unread.oldest({partition: offsets[partition] for partition in behind})
        return {number: found.get(number, before.get(number, 0.0)) for number in behind if number in {*found, *before}}


def _offsets(topics: Topics, places: Iterable[TopicPartition], isolation: IsolationLevel) -> Ends:
    asked = {place: OffsetSpec.latest() for place in places}
    with reachable(topics.bootstrap, "list offsets"):
        answers = topics.admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
        return {
            (place.topic, place.partition): answer.result(REQUEST_SECONDS).offset for place, answer in answers.items()
        }


class Unread:
    """Looks at the first committed record at or behind an offset; fetches no more than the batch it stands in."""

    def __init__(self, settings: Settings) -> None:
        """Connect in the background."""
        self._topic = settings.source.topic
        config = consumer_config(settings.source.bootstrap)
        # Enough for one record of each partition: the broker sends a whole batch in any case, and nothing is kept.
        little = {"fetch.message.max.bytes": 1_024, "queued.min.messages": 1, "queued.max.messages.kbytes": 64}
        self._consumer = made(Consumer, {**config, **little})

    def oldest(self, offsets: Mapping[int, int]) -> dict[int, float]:
        """Its timestamp in seconds, for each partition that answered in time."""
        found: dict[int, float] = {}
        deadline = time.monotonic() + UNREAD_SECONDS
        self._consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in offsets.items()])
        try:
            while len(found) < len(offsets) and (left := deadline - time.monotonic()) > 0:
                message = self._consumer.poll(left)
                if message is None:
                    break
                if message.error() is None:
                    milliseconds = message.timestamp()[1]  # -1, or 0: it has none
                    found.setdefault(message.partition(), milliseconds / 1000 if milliseconds > 0 else NOTHING_UNREAD)
                elif message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
                    found.setdefault(message.partition(), NOTHING_UNREAD)
        finally:
            self._consumer.unassign()
        return found

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
