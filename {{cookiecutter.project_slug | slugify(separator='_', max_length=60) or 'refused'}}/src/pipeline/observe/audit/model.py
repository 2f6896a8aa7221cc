"""The rules of identity and ledger once more, by brute force: what must become of each source record.

Guarantee: shares no code with the lanes. Every accepted id stands in a plain sorted list, and what is remembered
follows from its rank in it; slow, but there is little that could be wrong.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pipeline.observe.audit.records import DIGEST_BYTES, digest, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pipeline.observe.audit.records import Headers, Record
    from pipeline.settings import Dedup, Settings
    from pipeline.settings import Identity as HeaderNames

FRESH = "fresh"
DUPLICATE = "duplicate"
STALE = "stale"
OLD_EPOCH = "old-epoch"
CONFLICT = "conflict"
IDENTITY = "identity"
DECODE = "decode"
# Why a value, or what the user's function made of it, could not be used. The audit does not tell these apart.
CODEC = ("trailing", "limits", "framing", "unknown-schema", "schema-mismatch", "encode", "oversized")

VERDICTS = (FRESH, DUPLICATE, STALE, OLD_EPOCH, CONFLICT)
REASONS = (IDENTITY, STALE, OLD_EPOCH, CONFLICT, DECODE)

# The limits of the types are the longest texts, too: a longer one is never converted to a number.
LONG = (re.compile(rb"[0-9]{1,19}"), 2**63 - 1)
INT = (re.compile(rb"[0-9]{1,10}"), 2**31 - 1)
MAX_NAME_BYTES = 200

Id = tuple[int, int]
ExpectLetter: TypeAlias = "Callable[[str, bytes, int, int], None]"


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

    __slots__ = ("contents", "epoch", "floor", "ids", "ranges")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.floor: Id = (-1, -1)
        self.ids: list[Id] = []
        self.contents: dict[Id, bytes] = {}
        self.ranges = 0

    def insert(self, new: Id, content: bytes, hashes: int) -> None:
        insort(self.ids, new)
        place = bisect_left(self.ids, new)
        # The neighbours that continue a range with it: none makes one more, both make one less.
        self.ranges += 1 - (self._at(place - 1) == (new[0], new[1] - 1)) - (self._at(place + 1) == (new[0], new[1] + 1))
        if len(self.ids) - place <= hashes:
            self.contents[new] = content
        if len(self.ids) > hashes:
            self.contents.pop(self.ids[-hashes - 1], None)

    def trim(self, keep: int) -> None:
        while len(self.ids) > keep:
            lowest = self.ids.pop(0)
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
        return 48 + len(name) + 24 * producer.ranges + 24 * min(self._limits.hashes, len(producer.ids))


class Truth:
    """What one lane's source records must have led to: 25 bytes for each record, and some counts."""

    def __init__(self, settings: Settings, partition: int, expect_letter: ExpectLetter) -> None:
        """`expect_letter` is told (reason, digest, source partition, offset) of each dead letter that must exist."""
        self._names = settings.identity
        self._drop_stale = settings.dedup.stale == "drop"
        self._topic = settings.source.topic
        self._partition = partition
        self._model = Model(settings.dedup)
        self._expect_letter = expect_letter
        self._offsets = array("q")
        self._letters = bytearray()
        self._open = bytearray()
        self.read = 0
        self.written = 0
        self.dropped = 0
        self.verdicts: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Judge the next source record."""
        self.read += 1
        stamp = read_stamp(record.headers, self._names)
        fate = IDENTITY
        if stamp is not None:
            fate = self._model.judge(stamp, digest((record.key, record.value)))
            self.verdicts[fate] += 1
        if fate == FRESH:
            # Kept until the user's function has said whether the value can be decoded.
            self._offsets.append(record.offset)
            self._letters += self._letter(record, DECODE)
            self._open.append(True)
        elif fate != DUPLICATE and not (fate == STALE and self._drop_stale):
            self._expect(fate, self._letter(record, fate), record.offset)

    def settle(self, offset: int, outputs: int | None) -> bool | None:
        """Take the user's function's word on one record: None if it is not fresh, False if it came before."""
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset:
            return None
        if not self._open[place]:
            return False
        self._open[place] = False
        if outputs is None:
            letter = bytes(self._letters[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES])
            self._expect(DECODE, letter, offset)
        elif outputs:
            self.written += outputs
        else:
            self.dropped += 1
        return True

    @property
    def unsettled(self) -> int | None:
        """The offset of the first fresh record on which the user's function said nothing."""
        first = self._open.find(1)
        return None if first < 0 else self._offsets[first]

    def _letter(self, record: Record, reason: str) -> bytes:
        numbers = (record.partition, record.offset, record.timestamp)
        return letter_digest(record, (reason.encode(), self._topic.encode(), *(b"%d" % number for number in numbers)))

    def _expect(self, reason: str, letter: bytes, offset: int) -> None:
        self.dead_letters[reason] += 1
        self._expect_letter(reason, letter, self._partition, offset)


def letter_digest(original: Record, place: Sequence[bytes | None]) -> bytes:
    """Digest of a dead letter: why and from where (reason, topic, partition, offset, timestamp), and its own bytes."""
    return digest((*place, original.key, original.value, *flat(original.headers)))
