"""Reads what is committed in given windows of a topic's partitions, to their last offset.

Guarantee: a window ends at its end, never at a time-out; and while the open transaction of another producer hides a
part of it, the read waits, since committed records may stand behind it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import Unreachable
from pipeline.kafka import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from confluent_kafka import Message

# Longer than Kafka's default transaction time-out of 60 s, after which the broker ends what hides the tail.
SILENCE_SECONDS = 75.0


def committed(config: Mapping[str, Any], topic: str, windows: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
    """Yield the committed records from start to end, exclusively, of each partition; `config` is of a consumer."""
    unread = {partition: end for partition, (start, end) in windows.items() if start < end}
    bootstrap = config["bootstrap.servers"]
    with closing(Consumer({**config, "isolation.level": "read_committed"})) as consumer:
        consumer.assign([TopicPartition(topic, partition, windows[partition][0]) for partition in unread])
        while unread:
            message = _poll(consumer, bootstrap, topic, unread)
            partition, offset = message.partition(), message.offset()
            if partition not in unread:
                continue
            end = unread[partition]
            if message.error() is None and offset < end:
                yield message
                offset += 1
            # An end of partition below the window's end: an open transaction hides the rest, it will come.
            if offset >= end:
                del unread[partition]
                consumer.pause([TopicPartition(topic, partition)])


def headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    """The headers of a record; None if the client cannot hand them over, since a name is not UTF-8."""
    try:
        return message.headers() or []
    except UnicodeDecodeError:
        return None


def _poll(consumer: Consumer, bootstrap: str, topic: str, unread: Mapping[int, int]) -> Message:
    message = consumer.poll(SILENCE_SECONDS)
    if message is None:
        msg = (
            f"{topic} {sorted(unread)}: nothing readable for {SILENCE_SECONDS} s; an open transaction of "
            "another producer hides the end, or the leader does not answer; end that transaction, then start again"
        )
        raise Unreachable(msg)
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's local code
        with reachable(bootstrap, f"read back {topic} [{message.partition()}]"):
            raise KafkaException(error)
    return message
