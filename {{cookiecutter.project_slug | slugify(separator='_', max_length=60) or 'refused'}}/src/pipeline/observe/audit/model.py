"""The rules of identity and ledger once more, by brute force: what must become of each source record.

Guarantee: shares no code with the lanes. Every accepted id stands in a plain sorted list, and what is remembered
follows from its rank in it; slow, but there is little that could be wrong.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline.observe.audit.records import Headers
    from pipeline.sections import Dedup
    from pipeline.sections import Identity as HeaderNames

FRESH = "fresh"
DUPLICATE = "duplicate"
STALE = "stale"
OLD_EPOCH = "old-epoch"
CONFLICT = "conflict"
IDENTITY = "identity"
DECODE = "decode"
# Why else a value, or what the user's function made of it, could not be used.
CODEC = ("trailing", "limits", "framing", "unknown-schema", "schema-mismatch", "encode", "oversized")

VERDICTS = (FRESH, DUPLICATE, STALE, OLD_EPOCH, CONFLICT)
REASONS = (IDENTITY, STALE, OLD_EPOCH, CONFLICT, DECODE)

# The limits of the types are the longest texts, too: a longer one is never converted to a number.
LONG = (re.compile(rb"[0-9]{1,19}"), 2**63 - 1)
INT = (re.compile(rb"[0-9]{1,10}"), 2**31 - 1)
MAX_NAME_BYTES = 200

Id = tuple[int, int]


class Stamp(NamedTuple):
    """A well-formed identity."""

    producer: bytes
    epoch: int
    id: Id


def read_stamp(headers: Headers, names: HeaderNames) -> Stamp | None:
    """Take the identity from a record's headers; None if a part is missing, malformed, or there twice."""
    wanted = (names.producer_id, names.producer_epoch, names.txn_id, names.seq)
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in found:
            return None
        if name in wanted:
            found[name] = value
    producer = found.get(names.producer_id)
    epoch = found.get(names.producer_epoch)
    txn = _number(found.get(names.txn_id), LONG)
    seq = _number(found.get(names.seq), INT)
    raised = 0 if epoch is None else _number(epoch, LONG)
    if producer is None or txn is None or seq is None or raised is None or not _is_name(producer):
        return None
    return Stamp(producer, raised, (txn, seq))


def _is_name(producer: bytes) -> bool:
    try:
        producer.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return 1 <= len(producer) <= MAX_NAME_BYTES


def _number(text: bytes | None, limit: tuple[re.Pattern[bytes], int]) -> int | None:
    pattern, highest = limit
    if text is None or not pattern.fullmatch(text):
        return None
    number = int(text)
    return number if number <= highest else None


class _Producer:
    """The recent ids of one producer, rising, and the content of its newest ones."""

    __slots__ = ("contents", "epoch", "floor", "ids", "peaks", "ranges")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.floor: Id = (-1, -1)
        self.ids: list[Id] = []
        self.contents: dict[Id, bytes] = {}
        self.ranges = 0
        self.peaks = 0  # the highest place in each transaction, summed

    def insert(self, new: Id, content: bytes, hashes: int) -> None:
        insort(self.ids, new)
        place = bisect_left(self.ids, new)
        # The neighbours that continue a range with it: none makes one more, both make one less.
        self.ranges += 1 - (self._at(place - 1) == (new[0], new[1] - 1)) - (self._at(place + 1) == (new[0], new[1] + 1))
        above, below = self._at(place + 1), self._at(place - 1)
        if above is None or above[0] != new[0]:
            self.peaks += new[1] - (below[1] if below is not None and below[0] == new[0] else 0)
        if len(self.ids) - place <= hashes:
            self.contents[new] = content
        if len(self.ids) > hashes:
            self.contents.pop(self.ids[-hashes - 1], None)

    def trim(self, keep: int) -> None:
        while len(self.ids) > keep:
            lowest = self.ids.pop(0)
            if self.ids[0][0] != lowest[0]:
                self.peaks -= lowest[1]
            self.ranges -= self._at(0) != (lowest[0], lowest[1] + 1)
            self.contents.pop(lowest, None)
            self.floor = lowest

    def _at(self, place: int) -> Id | None:
        return self.ids[place] if 0 <= place < len(self.ids) else None


class Model:
    """Verdicts on the records of one lane, in offset order."""

    def __init__(self, limits: Dedup) -> None:
        """Begin as the lane began: with nothing remembered."""
        self._limits = limits
        self._producers: dict[bytes, _Producer] = {}
        # Those with more than one id, by their last fresh one, oldest first.
        self._trimmable: dict[bytes, _Producer] = {}
        self.cost = 0

    def judge(self, stamp: Stamp, content: bytes) -> str:
        """Give the verdict on the next record; `content` is a digest of its key and value."""
        producer = self._producers.get(stamp.producer)
        if producer is None:
            producer = self._producers[stamp.producer] = _Producer(stamp.epoch)
        if stamp.epoch < producer.epoch:
            return OLD_EPOCH
        producer.epoch = stamp.epoch
        place = bisect_left(producer.ids, stamp.id)
        if place < len(producer.ids) and producer.ids[place] == stamp.id:
            return DUPLICATE if producer.contents.get(stamp.id, content) == content else CONFLICT
        if stamp.id <= producer.floor:
            return STALE
        self._accept(stamp, producer, content)
        return FRESH

    def _accept(self, stamp: Stamp, producer: _Producer, content: bytes) -> None:
        self.cost -= self._cost(stamp.producer, producer)
        producer.insert(stamp.id, content, self._limits.hashes)
        producer.trim(self._limits.recent_ids)
        self.cost += self._cost(stamp.producer, producer)
        self._trimmable.pop(stamp.producer, None)
        if len(producer.ids) > 1:
            self._trimmable[stamp.producer] = producer
        while self.cost > self._limits.ledger_bytes and self._trimmable:
            name = next(iter(self._trimmable))
            oldest = self._trimmable.pop(name)
            self.cost -= self._cost(name, oldest)
            oldest.trim(1)
            self.cost += self._cost(name, oldest)

    def _cost(self, name: bytes, producer: _Producer) -> int:
        if not producer.ids:
            return 0
        inner = len(producer.ids) - producer.ranges
        sums = (producer.ids[-1][0] - producer.ids[0][0], producer.peaks - inner, inner)
        ranges = sum(_most_bytes(producer.ranges, total) for total in sums)
        return 48 + len(name) + ranges + 8 * min(self._limits.hashes, len(producer.ids))


def _most_bytes(count: int, total: int) -> int:
    """Of so many numbers with this sum, at seven bits to a byte: how many may need one byte, two, three, and so on."""
    taken = count
    while total := total // 128:
        taken += min(count, total)
    return taken
