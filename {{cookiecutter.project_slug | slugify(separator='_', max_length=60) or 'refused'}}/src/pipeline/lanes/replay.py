"""Dead letters read back, and sent to the source once more after a fix.

Guarantee: a letter is sent back exactly once, however often it is asked for, and whatever is killed meanwhile. Its
new identity follows from its place in the dead letter topic. Each part is one Kafka transaction: fence, look which of
it the source already holds, send the rest, commit. Should a letter come twice all the same, because retention took the
first one out of the source, the lane knows it again: it goes to the partition it came from.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.acls import check, of_letters, of_replay
from pipeline.address import entry, made
from pipeline.errors import PipelineError, Unreachable
from pipeline.faults import fault_point
from pipeline.kafka import COMMON, REQUEST_SECONDS, consumer_config, mapped, reachable, until_deadline, with_room
from pipeline.lanes.fence import take_id
from pipeline.lanes.letters import CUT, POSITION, PREFIX
from pipeline.lanes.sent_back import SentBack, producer_id
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from pipeline.lanes.sent_back import Identity
    from pipeline.lanes.transaction import Headers
    from pipeline.settings import Settings

AT_ONCE = 500
# Records of one transaction: bounds what is held in memory, and how long readers wait.
PART = 5_000
COMMIT_SECONDS = 60.0
REPLAYED = "replayed-from"


class Letter(NamedTuple):
    """A dead letter: where it stands, the record as it was, and what was said of it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    said: dict[str, str]

    @property
    def name(self) -> str:
        """Its place, as the commands name it."""
        return f"{self.partition}:{self.offset}"

    @property
    def is_cut(self) -> bool:
        """Whether only a part of the record is left."""
        return any(name == CUT for name, _ in self.headers)


def read_letters(settings: Settings) -> Iterator[Letter]:
    """All committed dead letters, partition by partition."""
    name = settings.output.dead_letter_topic
    check(settings, of_letters)
    topics = Topics(settings.output_bootstrap)
    partitions = range(topics.one(name, "dead letter topic").partitions)
    first = topics.offsets(name, partitions, OffsetSpec.earliest())
    end = topics.offsets(name, partitions, OffsetSpec.latest())
    for partition in partitions:
        if first[partition] < end[partition]:
            yield from _read(settings, name, partition, first[partition])


def _read(settings: Settings, name: str, partition: int, first: int) -> Iterator[Letter]:
    bootstrap = settings.output_bootstrap
    with reachable(bootstrap, f"read {name}"), closing(made(Consumer, consumer_config(bootstrap))) as consumer:
        consumer.assign([TopicPartition(name, partition, first)])
        while True:
            messages = consumer.consume(1, REQUEST_SECONDS) + consumer.consume(AT_ONCE, 0)
            if not messages:
                msg = f"{name} [{partition}]: neither records nor an end for {REQUEST_SECONDS} s"
                raise Unreachable(msg)
            for message in messages:
                error = message.error()
                if error is None:
                    yield letter(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
                    return
                else:
                    raise KafkaException(error)


def letter(message: Message) -> Letter:
    """Part a dead letter into the original record and what was added to it."""
    headers = message.headers() or []
    added = headers[-len(POSITION) :]
    if [name for name, _ in added] != [PREFIX + name for name in POSITION]:
        headers, added = [*headers, *[("", b"")] * len(POSITION)], []
    said = {name.removeprefix(PREFIX): (value or b"").decode(errors="backslashreplace") for name, value in added}
    key, value = message.key(), message.value()
    return Letter(message.partition(), message.offset(), key, value, headers[: -len(POSITION)], said)


def replay(settings: Settings, letters: Sequence[Letter]) -> int:
    """Send letters back to the source, to the partitions they came from, under new identities; return how many.

    Those that are there already are not sent again.
    """
    check(settings, of_replay)
    for one in letters:
        if one.is_cut or one.said.get("topic") != settings.source.topic:
            why = "only a part of the record is left" if one.is_cut else f"it is not of {settings.source.topic}"
            msg = f"dead letter {one.name} cannot be replayed: {why}; nothing was sent"
            raise PipelineError(msg)
    ordered = sorted(letters, key=lambda one: (one.partition, one.offset))
    # A partition may have been sent letters since the first of those that came from it.
    first: dict[int, int] = {}
    for one in ordered:
        partition, offset = int(one.said["partition"]), int(one.said["offset"])
        first[partition] = min(first.get(partition, offset), offset)
    sent_back = SentBack(settings, first)
    return sum(_send(settings, ordered[at : at + PART], sent_back) for at in range(0, len(ordered), PART))


def _send(settings: Settings, letters: Sequence[Letter], sent_back: SentBack) -> int:
    bootstrap, topic = settings.source.bootstrap, settings.source.topic
    own = f"{settings.transactional_ids}replay"
    config = {
        **COMMON,
        **entry(bootstrap),
        "transactional.id": own,
        # librdkafka takes no request that may outlive its transaction.
        "transaction.timeout.ms": max(int(COMMIT_SECONDS * 1000), settings.client.request_timeout_ms),
        "message.max.bytes": 1_000_000_000,
    }
    needs = (f"Write on TransactionalId {own}", f"Write on Topic {topic}")
    with mapped(f"replay dead letters to {topic} on {bootstrap} (run it again: nothing is sent twice)", *needs):
        producer = made(Producer, config)
        take_id(producer, COMMIT_SECONDS)
        there = sent_back.look(identity(settings, one) for one in letters)
        due = [one for one in letters if identity(settings, one) not in there]
        if not due:
            return 0
        producer.begin_transaction()
        for one in due:
            partition, headers = int(one.said["partition"]), stamped(settings, one)
            with_room(producer, COMMIT_SECONDS, topic, one.value, one.key, partition, headers=headers)
            fault_point("amid replay")
        producer.flush(COMMIT_SECONDS)
        fault_point("before replay is committed")
        until_deadline(producer.commit_transaction, COMMIT_SECONDS)  # refused if any of them was not delivered
        fault_point("after replay is committed")
    return len(due)


def identity(settings: Settings, one: Letter) -> Identity:
    """By which producer, and in which transaction of it, a letter is sent back."""
    return producer_id(settings, one.partition).encode(), b"%d" % one.offset


def stamped(settings: Settings, one: Letter) -> Headers:
    """The original headers with a new identity: the letter's own place, which no other letter has."""
    names = settings.identity
    producer, txn = identity(settings, one)
    stamp = {names.producer_id: producer, names.producer_epoch: b"0", names.txn_id: txn, names.seq: b"0"}
    kept = [(name, value) for name, value in one.headers if name not in stamp and name != REPLAYED]
    place = f"{settings.output.dead_letter_topic}:{one.name}".encode()
    return [*kept, *stamp.items(), (REPLAYED, place)]
