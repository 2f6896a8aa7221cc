"""A second reader, which shares nothing with Kafka's clients: the broker's own files, batch by batch.

A client tells what it was given; the files tell which producer wrote each batch, and how its transaction ended. What
is visible by their markers must be exactly what a `read_committed` client sees. Format: record batches of magic 2.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER = struct.Struct(">qiibIhiqqqhii")
FRAME_BYTES = 12  # offset and length stand before what the length counts
FIELDS = (0, 1, 3, 5, 6, 9, 10)
MAGIC = 2
TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT = 1


class Batch(NamedTuple):
    """A record batch: the offsets it covers, who wrote it, in which epoch, and for a marker whether it commits."""

    first: int
    last: int
    producer: int
    epoch: int
    transactional: bool
    marker: bool | None


class Visible(NamedTuple):
    """What the files of a partition hold for readers, and the producers whose transactions are still open."""

    offsets: set[int]
    open: set[int]


def visible(partition: Path) -> Visible:
    """Follow the markers of a partition that was never compacted."""
    offsets: set[int] = set()
    waiting: defaultdict[int, list[Batch]] = defaultdict(list)
    for batch in batches(partition):
        if batch.marker is not None:
            ended = waiting.pop(batch.producer, [])
            settled = ended if batch.marker else []
        elif batch.transactional:
            waiting[batch.producer].append(batch)
            settled = []
        else:
            settled = [batch]
        for found in settled:
            offsets.update(range(found.first, found.last + 1))
    return Visible(offsets, set(waiting))


def commits(partition: Path) -> set[tuple[int, int]]:
    """Return the transactions that were committed there, each by one marker: producer and epoch of each."""
    found = [(batch.producer, batch.epoch) for batch in batches(partition) if batch.marker]
    assert len(found) == len(set(found)), f"{partition.name}: a second marker for the same transaction"
    return set(found)


def batches(partition: Path) -> Iterator[Batch]:
    """Read all segments of a partition in order."""
    for segment in sorted(partition.glob("*.log")):
        data = memoryview(segment.read_bytes())
        at = 0
        # A file that is being written may end in part of a batch, or in zeros.
        while len(data) - at >= HEADER.size:
            fields = HEADER.unpack_from(data, at)
            first, length, magic, attributes, delta, producer, epoch = (fields[index] for index in FIELDS)
            if length <= 0 or at + FRAME_BYTES + length > len(data):
                break
            assert magic == MAGIC, f"{segment}: a batch of magic {magic}"
            marker = _commits(data[at + HEADER.size :]) if attributes & CONTROL else None
            yield Batch(first, first + delta, producer, epoch, bool(attributes & TRANSACTIONAL), marker)
            at += FRAME_BYTES + length


def _commits(record: memoryview) -> bool:
    """Tell whether the only record of a control batch is a commit: its key is a version and a kind."""
    at = 0
    for field in ("length", "attributes", "timestamp", "offset", "key length"):
        if field == "attributes":
            at += 1
            continue
        while record[at] & 0x80:  # a varint goes on
            at += 1
        at += 1
    return bool(struct.unpack_from(">hh", record, at)[1] == COMMIT)
