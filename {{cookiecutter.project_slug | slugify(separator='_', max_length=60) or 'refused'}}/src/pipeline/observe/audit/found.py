"""The results of the shuffled path as a reader finds them: how often, when they were written, and in which order.

Guarantee: each key of a topic stands in one partition of it, unless the topic has grown, and its results stand there in
the order of their time, or of their source offsets behind dedup. Where the same content may come from two places, and
for corrections, which come when they come, nobody can say which order is right, and none is demanded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from pipeline.observe.audit.placement import Grown, Split, growth, key_hash
from pipeline.observe.audit.tally import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.observe.audit.placement import Trace
    from pipeline.observe.audit.records import Record


class Found:
    """All results that are there."""

    def __init__(self, places: Mapping[Any, tuple[int, int] | None]) -> None:
        """`places` are the group and the place in it of each result that must be there; None if it has several."""
        self._places = places
        self._last: dict[tuple[str, bytes, int, int], int] = {}
        self._homes: dict[tuple[str, bytes], int] = {}
        self._away: dict[tuple[str, bytes], Split] = {}
        self._traces: dict[str, dict[int, Trace]] = defaultdict(lambda: defaultdict(list))
        self.counts: Counter[Any] = Counter()
        self.times: dict[Any, list[int]] = defaultdict(list)  # when each was written, by Kafka's clock or the job's
        self.out_of_order = 0
        self.examples: list[str] = []

    def add(self, topic: str, one: Any, record: Record) -> None:
        """Note a result; those of one partition come in offset order."""
        self.counts[one] += 1
        self.times[one].append(record.timestamp)
        if record.key is None:
            return
        home = self._homes.setdefault((topic, record.key), record.partition)
        if home != record.partition:
            self._away.setdefault((topic, record.key), Split(topic, (record.partition, record.offset)))
        self._traces[topic][record.partition].append((key_hash(record.key), record.partition))
        place = self._places.get(one)
        if place is not None:
            self._follow(topic, record.key, record, place)

    def _follow(self, topic: str, key: bytes, record: Record, place: tuple[int, int]) -> None:
        group, at = place
        row = (topic, key, record.partition, group)
        if at < self._last.get(row, at):
            self.out_of_order += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(f"out of order: {topic}, partition {record.partition}, offset {record.offset}")
        self._last[row] = max(at, self._last.get(row, at))

    def placed(self, partitions: Mapping[str, int]) -> tuple[Sequence[Split], list[Grown]]:
        """Keys that stand in two partitions for no reason, and topics that grew, which is one; given today's counts."""
        splits, grown = list(self._away.values()), []
        for topic, keys in Counter(split.topic for split in splits).items():
            # A log is a history: within each partition the count that a record was placed by only ever rises.
            counts = growth(list(self._traces[topic].values()), partitions[topic])
            if counts is not None:
                grown.append(Grown(topic, counts, keys))
        explained = {one.topic for one in grown}
        return [split for split in splits if split.topic not in explained], grown
