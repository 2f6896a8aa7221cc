"""Where a key belongs: one partition of its topic, unless the topic has grown.

Guarantee: a key that stands in two partitions is a fault, except where numbers of partitions that the topic had one
after the other put every record of every lane exactly where it stands. Only then is the order of a key kept within
each partition alone, as Kafka has it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Java's partitioner: murmur2 of the key, by this seed.
SEED, FACTOR, SHIFT = 0x9747B28C, 0x5BD1E995, 24
MASK, POSITIVE = 0xFFFFFFFF, 0x7FFFFFFF
WORD = 4
# A topic is taken to have grown twice at most.
GROWTHS = 2

# Of one lane, in the order of the source: hash of the key, and the partition that the record stands in.
Trace = list[tuple[int, int]]


class Split(NamedTuple):
    """A key that stands in more than one partition of a topic, and where it was first seen away from home."""

    topic: str
    example: tuple[int, int]

    @property
    def line(self) -> str:
        """What is wrong, and where."""
        return f"key in two partitions: {self.topic}, partition {self.example[0]}, offset {self.example[1]}"


class Grown(NamedTuple):
    """Numbers of partitions that explain where the keys of a topic stand, the last being today's."""

    topic: str
    counts: tuple[int, ...]
    keys: int

    @property
    def line(self) -> str:
        """What it means for readers."""
        counts = " to ".join(map(str, self.counts))
        return f"{self.topic} has grown from {counts} partitions: the order of {self.keys} keys is kept in each alone"


@lru_cache(maxsize=100_000)
def key_hash(key: bytes) -> int:
    """Java's hash of a key; modulo the number of partitions it is the key's partition."""
    found = SEED ^ len(key)
    whole = len(key) - len(key) % WORD
    for at in range(0, whole, WORD):
        word = int.from_bytes(key[at : at + WORD], "little") * FACTOR & MASK
        found = found * FACTOR & MASK ^ (word ^ word >> SHIFT) * FACTOR & MASK
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * FACTOR & MASK
    found = (found ^ found >> 13) * FACTOR & MASK
    return (found ^ found >> 15) & POSITIVE


def growth(traces: Sequence[Trace], today: int) -> tuple[int, ...] | None:
    """The numbers of partitions that a topic must have had, up to today's, or None if none explain its records."""
    for growths in range(1, GROWTHS + 1):
        for earlier in combinations(range(1, today), growths):
            counts = (*earlier, today)
            if all(_explained(trace, counts) for trace in traces):
                return counts
    return None


def _explained(trace: Trace, counts: tuple[int, ...]) -> bool:
    """Whether each record stands where one of the numbers puts it, none of them after a later one."""
    eras = iter(counts)
    count = next(eras)
    for hashed, partition in trace:
        while hashed % count != partition:
            later = next(eras, None)
            if later is None:
                return False
            count = later
    return True
