"""What one lane's source records must have led to: outputs, dead letters with their reasons, and counts.

Guarantee: every record has one fate. Whether a value can be used, and if not why, is the word of the same codec and the
same function, applied without lanes; all else is the model's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from pipeline.observe.audit.letters import letter_digest, told_digest
from pipeline.observe.audit.model import DUPLICATE, FRESH, IDENTITY, STALE, Model, read_stamp
from pipeline.observe.audit.records import DIGEST_BYTES, digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.observe.audit.letters import Cuts
    from pipeline.observe.audit.records import Record
    from pipeline.settings import Settings

ExpectLetter: TypeAlias = "Callable[[str, bytes, int, int], None]"


class Truth:
    """The fates of one lane's records: 25 bytes for each fresh one, and some counts."""

    def __init__(self, settings: Settings, partition: int, cuts: Cuts, expect_letter: ExpectLetter) -> None:
        """`expect_letter` is told (reason, digest, source partition, offset) of each dead letter that must exist."""
        self._names = settings.identity
        self._dedup = settings.delivery.semantics != "at-least-once"
        self._drop_stale = settings.dedup.stale == "drop"
        self._topic = settings.source.topic
        self._partition = partition
        self._model = Model(settings.dedup)
        self._cuts = cuts
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
        stamp = read_stamp(record.headers, self._names) if self._dedup else None
        fate = IDENTITY if self._dedup else FRESH
        if stamp is not None:
            fate = self._model.judge(stamp, digest((record.key, record.value)))
            self.verdicts[fate] += 1
        if fate == FRESH:
            # Kept until the user's function has said whether the value can be used.
            self._offsets.append(record.offset)
            self._letters += self._letter(record)
            self._open.append(True)
        elif fate != DUPLICATE and not (fate == STALE and self._drop_stale):
            self._expect(fate, self._letter(record), record.offset)

    def settle(self, offset: int, outputs: int | str) -> bool | None:
        """Take the word on one record, its outputs or why none: None if it is not fresh, False if it came before."""
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset:
            return None
        if not self._open[place]:
            return False
        self._open[place] = False
        if isinstance(outputs, str):
            letter = bytes(self._letters[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES])
            self._expect(outputs, letter, offset)
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

    def _letter(self, record: Record) -> bytes:
        numbers = (record.partition, record.offset, record.timestamp)
        place = (self._topic.encode(), *(b"%d" % number for number in numbers))
        return letter_digest(self._cuts.copy(record), place)

    def _expect(self, reason: str, letter: bytes, offset: int) -> None:
        self.dead_letters[reason] += 1
        self._expect_letter(reason, told_digest(reason, letter), self._partition, offset)
