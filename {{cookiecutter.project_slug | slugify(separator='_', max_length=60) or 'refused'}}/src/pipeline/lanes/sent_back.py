"""Which dead letters the source already holds again: the source itself is the memory of a replay.

Guarantee: after a fence the answer is whole. Nobody else can then send letters back; what an earlier replay committed
is found, and what it left open is aborted. A letter was sent back behind its own record, so only that part of the
source is read, and only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.committed import committed, headers_of
from pipeline.kafka import consumer_config
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

    from pipeline.settings import Settings

# Producer and transaction of a letter that was sent back: its partition and offset in the dead letter topic.
Identity = tuple[bytes | None, bytes | None]


class SentBack:
    """What is found in the source, from given offsets on; each look reads on from where the last one ended."""

    def __init__(self, settings: Settings, first: dict[int, int]) -> None:
        """`first` are the offsets to begin at, of the partitions that letters may have been sent back to."""
        self._settings = settings
        self._topics = Topics(settings.source.bootstrap)
        self._next = dict(first)
        self._found: set[Identity] = set()

    def look(self, wanted: Iterable[Identity]) -> set[Identity]:
        """Which of these identities are committed in the source; to be asked behind a fence."""
        source = self._settings.source
        first = self._topics.offsets(source.topic, self._next, OffsetSpec.earliest())
        ends = self._topics.offsets(source.topic, self._next, OffsetSpec.latest(), committed=False)
        windows = {number: (max(start, first[number]), ends[number]) for number, start in self._next.items()}
        for message in committed(consumer_config(source.bootstrap), source.topic, windows):
            self._note(message)
        self._next = {number: max(start, end) for number, (start, end) in windows.items()}
        return self._found.intersection(wanted)

    def _note(self, message: Message) -> None:
        names = self._settings.identity
        found = dict(headers_of(message) or ())
        producer = found.get(names.producer_id)
        if producer is not None and producer.startswith(producer_id(self._settings, "").encode()):
            self._found.add((producer, found.get(names.txn_id)))


def producer_id(settings: Settings, partition: int | str) -> str:
    """The name under which the letters of one partition are sent back."""
    return f"{settings.app.id}.dead-letters.{partition}"
