"""Expected against found, as multisets of digests, and the order of each key.

Guarantee: memory is bounded by about 90 bytes for each record, whatever its size: records are spread over buckets by
their key, so that all of one key meet in one bucket, and one bucket at a time is unpacked and compared.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pipeline.observe.audit.placement import Split, key_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.observe.audit.placement import Trace

BUCKETS = 256
# group, content, name, source partition, source offset, place among the outputs of that record
EXPECTED = Struct("<q16sHiqi")
# group, content, name, hash of the key, partition, offset
FOUND = Struct("<q16sHiiq")
# Records without a key have no order to keep, and may stand in any partition.
NO_GROUP = 0
EXAMPLES = 10

Place = tuple[int, int, int]


@dataclass
class Counts:
    """How many records of one output topic, or of one dead letter reason."""

    expected: int = 0
    found: int = 0
    lost: int = 0
    duplicated: int = 0
    unexpected: int = 0


@dataclass
class Comparison:
    """What the two sides differ in."""

    counts: Mapping[str, Counts]
    out_of_order: int = 0
    split: list[Split] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)


class _Found(NamedTuple):
    group: int
    content: bytes
    name: int
    key_hash: int
    partition: int
    offset: int


class Tally:
    """Collects both sides; a name is an output topic, or the reason of dead letters."""

    def __init__(self, names: tuple[str, ...], topic: str | None = None) -> None:
        """`topic` is where all of it stands, if names are not topics themselves."""
        self._names = list(names)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._topic = topic
        self._expected = [bytearray() for _ in range(BUCKETS)]
        self._found = [bytearray() for _ in range(BUCKETS)]

    def expect(self, name: str, key: bytes | None, content: bytes, place: Place) -> None:
        """Note a record that must be there; place = (source partition, source offset, which of its outputs)."""
        group = self._group(name, key)
        packed = EXPECTED.pack(group, content, self._number(name), *place)
        self._expected[self._bucket(group, content)] += packed

    def find(self, name: str, key: bytes | None, content: bytes, partition: int, offset: int) -> None:
        """Note a record that is there; those of one partition come in offset order."""
        group = self._group(name, key)
        hashed = 0 if key is None else key_hash(key)
        packed = FOUND.pack(group, content, self._number(name), hashed, partition, offset)
        self._found[self._bucket(group, content)] += packed

    def compare(self) -> Comparison:
        """Compare bucket by bucket."""
        result = Comparison({name: Counts() for name in self._names})
        for number in range(BUCKETS):
            self._compare_bucket(result, self._expected[number], self._found[number])
        return result

    def traces(self, name: str) -> list[Trace]:
        """Where the records of a topic stand that have a key, for each lane in the order of the source."""
        lanes: dict[int, list[tuple[Place, int, int]]] = defaultdict(list)
        for expected, found in zip(self._expected, self._found, strict=True):
            waiting, _ = _waiting(expected)
            unclear = ambiguous(waiting)
            for record in map(_Found._make, FOUND.iter_unpack(found)):
                places = waiting.get(record.content)
                if places and self._names[record.name] == name and record.group != NO_GROUP:
                    place = places.popleft()
                    if record.content not in unclear:
                        lanes[place[0]].append((place, record.key_hash, record.partition))
        return [[(hashed, partition) for _, hashed, partition in sorted(lane)] for lane in lanes.values()]

    def _compare_bucket(self, result: Comparison, expected: bytearray, found: bytearray) -> None:
        waiting, names = _waiting(expected)
        for content, places in waiting.items():
            result.counts[self._names[names[content]]].expected += len(places)
        order = _Order(waiting)
        for record in map(_Found._make, FOUND.iter_unpack(found)):
            order.place(record)
            self._match(result, record, waiting, order)
        result.out_of_order += order.broken
        result.split += [Split(self._names[away.name], (away.partition, away.offset)) for away in order.away.values()]
        for content, places in waiting.items():
            name_of = self._names[names[content]]
            result.counts[name_of].lost += len(places)
            for partition, offset, _ in places:
                _example(result, f"lost: {name_of}, of source partition {partition}, offset {offset}")

    def _match(self, result: Comparison, record: _Found, waiting: dict[bytes, deque[Place]], order: _Order) -> None:
        counts = result.counts[self._names[record.name]]
        counts.found += 1
        places = waiting.get(record.content)
        wrong = []
        if places is None:
            counts.unexpected += 1
            wrong.append("unexpected")
        elif not places:
            counts.duplicated += 1
            wrong.append("duplicated")
        elif not order.keeps(record, places.popleft()):
            wrong.append("out of order")
        for finding in wrong:
            topic = self._topic or self._names[record.name]
            _example(result, f"{finding}: {topic}, partition {record.partition}, offset {record.offset}")

    def _number(self, name: str) -> int:
        """Names that nobody announced are numbered as they come: a function may name a topic that is not its own."""
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        return self._numbers[name]

    def _group(self, name: str, key: bytes | None) -> int:
        return NO_GROUP if key is None else hash((name, key)) or 1

    def _bucket(self, group: int, content: bytes) -> int:
        return (content[0] if group == NO_GROUP else group) % BUCKETS


def _waiting(expected: bytearray) -> tuple[dict[bytes, deque[Place]], dict[bytes, int]]:
    """Where each content must come from, in order, and its name."""
    waiting: dict[bytes, deque[Place]] = defaultdict(deque)
    names: dict[bytes, int] = {}
    for _, content, name, *place in sorted(EXPECTED.iter_unpack(expected), key=itemgetter(3, 4, 5)):
        waiting[content].append((place[0], place[1], place[2]))
        names[content] = name
    return waiting, names


def ambiguous(waiting: Mapping[bytes, deque[Place]]) -> set[bytes]:
    """The same content from two source partitions: no reader can say which one came first."""
    return {content for content, places in waiting.items() if len({partition for partition, _, _ in places}) > 1}


def _example(result: Comparison, line: str) -> None:
    if len(result.examples) < EXAMPLES:
        result.examples.append(line)


class _Order:
    """The last place found for each key, partition and source partition; and the partitions of each key."""

    def __init__(self, waiting: dict[bytes, deque[Place]]) -> None:
        self._ambiguous = ambiguous(waiting)
        self._last: dict[tuple[int, int, int], Place] = {}
        self._home: dict[int, int] = {}
        self.broken = 0
        self.away: dict[int, _Found] = {}  # of each key in several partitions, a record away from its first one

    def keeps(self, record: _Found, place: Place) -> bool:
        if record.group == NO_GROUP or record.content in self._ambiguous:
            return True
        row = (record.group, record.partition, place[0])
        last = self._last.get(row)
        if last is not None and place < last:
            self.broken += 1
            return False
        self._last[row] = place
        return True

    def place(self, record: _Found) -> None:
        if record.group != NO_GROUP and self._home.setdefault(record.group, record.partition) != record.partition:
            self.away.setdefault(record.group, record)
