"""The audit's own readers of the topics.

Guarantee: only the end of a partition, or the offset that was asked for, ends a read; silence is an error, never an
end. Isolation is `read_committed`, stated here, so that no change elsewhere can make the audit see what readers do not.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from pipeline.address import made
from pipeline.errors import PipelineError, Unreachable
from pipeline.kafka import admin_config, consumer_config, reachable, while_leaders_move
from pipeline.observe.audit.records import Ends, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.observe.audit.claims import Lane
    from pipeline.settings import Settings

AT_ONCE = 10_000
# A full batch is waited for as long as this: short, or each end of a topic would cost the whole of it.
BATCH_SECONDS = 0.02
CHECK_SECONDS = 0.1
# A partition that sends neither records nor its end for so long has no leader.
SILENCE_SECONDS = 30.0
COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


class KafkaTopics:
    """The topics of one app."""

    def __init__(
        self,
        settings: Settings,
        *,
        start_offsets: Mapping[tuple[str, int], int] | None = None,
        patience: float,
    ) -> None:
        """Read output from its beginning or from the given offsets; open transactions get `patience` seconds."""
        self._settings = settings
        self._starts = start_offsets or {}
        self._patience = patience
        self._source_admin = made(AdminClient, admin_config(settings.source.bootstrap))
        self._output_admin = made(AdminClient, admin_config(settings.output_bootstrap))

    def source_partitions(self) -> Sequence[int]:
        """Return the partitions that the source topic has now."""
        return self._partitions(self._source_admin, self._settings.source.topic)

    def source_topic_id(self) -> tuple[int, int]:
        """Return Kafka's id of the source topic, as its two longs."""
        described = self._describe(self._source_admin, self._settings.source.topic)
        return described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()

    def lane_log(self) -> Iterator[Record]:
        """Read every lane record that compaction has left."""
        return self.written(self._settings.lane_topic)

    def gone(self, lane: Lane) -> int:
        """Count the offsets of a lane that retention took, read or unread."""
        asked = self._source_admin, lane.source_topic, [lane.partition]
        first = self._offsets(*asked, OffsetSpec.earliest())[lane.partition]
        return max(min(first, lane.next_offset) - lane.start_offset, 0)

    def source(self, lane: Lane) -> Iterator[Record]:
        """Read what a lane claims to have settled; it may be all that retention left, if nothing was read before."""
        bootstrap, topic, partition = self._settings.source.bootstrap, lane.source_topic, lane.partition
        gone = self.gone(lane)
        first = lane.start_offset + gone
        if gone > lane.lost:
            msg = (
                f"{topic}, partition {partition}: retention took the offsets {lane.start_offset} to {first - 1}, with "
                "which the lane began; only a source topic that still holds all that a lane has read can be audited"
            )
            raise PipelineError(msg)
        if first == lane.next_offset:
            return
        end = self._offsets(self._source_admin, topic, [partition], OffsetSpec.latest())[partition]
        if end < lane.next_offset:
            msg = f"{topic}, partition {partition}: lane stands at {lane.next_offset}, but the log ends at {end}"
            raise PipelineError(msg)
        yield from self._read(bootstrap, topic, {partition: first}, until=lane.next_offset)

    def behind(self, lane: Lane) -> int:
        """Count the committed records that the lane has not yet read."""
        starts = {lane.partition: lane.next_offset}
        return sum(1 for _ in self._read(self._settings.source.bootstrap, lane.source_topic, starts))

    def written(self, topic: str) -> Iterator[Record]:
        """Read a topic of the output cluster to its end."""
        partitions = self._partitions(self._output_admin, topic)
        first = self._offsets(self._output_admin, topic, partitions, OffsetSpec.earliest())
        starts = {partition: self._starts.get((topic, partition), offset) for partition, offset in first.items()}
        return self._read(self._settings.output_bootstrap, topic, starts)

    def largest_letter(self) -> int:
        """Return the dead letter topic's limit of today."""
        topic = self._settings.output.dead_letter_topic
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with reachable(self._settings.output_bootstrap, f"limits of {topic}"):
            [answer] = self._output_admin.describe_configs([asked], request_timeout=SILENCE_SECONDS).values()
            return int(answer.result()["max.message.bytes"].value)

    def ends(self) -> Mapping[tuple[str, int], Ends]:
        """Return the ends of everything written, after transactions that are just being ended had time for it."""
        deadline = time.monotonic() + self._patience
        while True:
            ends = self._ends()
            if all(stable == end for stable, end in ends.values()) or time.monotonic() > deadline:
                return ends
            time.sleep(CHECK_SECONDS)

    def _ends(self) -> dict[tuple[str, int], Ends]:
        output = self._settings.output
        ends = {}
        for topic in (*output.topics, output.dead_letter_topic, self._settings.lane_topic):
            partitions = self._partitions(self._output_admin, topic)
            stable = self._offsets(self._output_admin, topic, partitions, OffsetSpec.latest())
            end = self._offsets(self._output_admin, topic, partitions, OffsetSpec.latest(), UNCOMMITTED)
            ends.update({(topic, partition): Ends(stable[partition], end[partition]) for partition in partitions})
        return ends

    def _read(
        self, bootstrap: str, topic: str, starts: Mapping[int, int], until: int | None = None
    ) -> Iterator[Record]:
        config = {**consumer_config(bootstrap), "isolation.level": "read_committed", "check.crcs": True}
        unread = set(starts)
        with reachable(bootstrap, f"read {topic}"), closing(made(Consumer, config)) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
            heard = time.monotonic()
            while unread:
                messages = consumer.consume(AT_ONCE, BATCH_SECONDS)
                for message in messages:
                    partition = message.partition()
                    if message.error() is not None:
                        self._check_end(topic, message.error())
                        unread.discard(partition)
                    elif until is not None and message.offset() >= until:
                        unread.discard(partition)
                    elif partition in unread:
                        yield _record(message)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > SILENCE_SECONDS:
                    msg = f"{topic}, partitions {sorted(unread)}: neither records nor an end for {SILENCE_SECONDS} s"
                    raise Unreachable(msg)

    def _check_end(self, topic: str, error: KafkaError) -> None:
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
            msg = f"{topic}: cannot be read to its end: {error.name()}: {error.str()}"
            raise PipelineError(msg)

    def _partitions(self, admin: AdminClient, topic: str) -> list[int]:
        return sorted(partition.id for partition in self._describe(admin, topic).partitions)

    def _describe(self, admin: AdminClient, topic: str) -> Any:
        with reachable(self._bootstrap(admin), f"describe {topic}"):
            futures = admin.describe_topics(TopicCollection([topic]), request_timeout=SILENCE_SECONDS)
            return futures[topic].result()

    def _offsets(
        self,
        admin: AdminClient,
        topic: str,
        partitions: Sequence[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = COMMITTED,
    ) -> dict[int, int]:
        asked, bootstrap = {TopicPartition(topic, partition): spec for partition in partitions}, self._bootstrap(admin)

        def ask() -> dict[int, int]:
            with reachable(bootstrap, f"offsets of {topic}"):
                futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=SILENCE_SECONDS)
                return {place.partition: future.result().offset for place, future in futures.items()}

        def renew() -> None:
            nonlocal admin
            admin = made(AdminClient, admin_config(bootstrap))

        return while_leaders_move(ask, renew, SILENCE_SECONDS)

    def _bootstrap(self, admin: AdminClient) -> str:
        return self._settings.source.bootstrap if admin is self._source_admin else self._settings.output_bootstrap


def _record(message: Any) -> Record:
    try:
        headers = message.headers()
    except UnicodeDecodeError:
        where = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
        msg = f"{where}: the name of a header is not UTF-8, and the client cannot read it; this topic cannot be audited"
        raise PipelineError(msg) from None
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers or [],
    )
