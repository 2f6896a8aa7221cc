"""Dead letters as the audit reads them, and the copy that must be in one whose topic takes less than the record.

Guarantee: by the rules in `docs/bad-input.md` alone. A letter that was cut is judged by what the record, the topic's
limit and the headers behind it leave room for: one that was cut for nothing, or elsewhere, matches nothing expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.observe.audit.model import CODEC, REASONS
from pipeline.observe.audit.records import digest, flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.observe.audit.records import Headers, Record

# The headers that a dead letter carries behind those of the original record.
HEADERS = ("reason", "detail", "topic", "partition", "offset", "timestamp", "version")
PREFIX = "dead-letter-"
CUT = f"{PREFIX}cut"
UNKNOWN_REASON = "unknown"
# Set aside for the frame of a record, and for that of a header.
FRAME_BYTES = 128
HEADER_BYTES = 10


class Cuts:
    """The letters that say they were cut: few, and of each only how large the headers behind it are."""

    def __init__(self, topic: str, limit: int) -> None:
        """`topic` is that of the source, `limit` the most bytes that the dead letter topic takes."""
        self._topic = topic.encode()
        self._limit = limit
        self._behind: dict[tuple[bytes | None, bytes | None], int] = {}

    def note(self, headers: Headers) -> None:
        """Take notice of a letter's headers, if they say that it was cut."""
        if len(headers) > len(HEADERS) and headers[-len(HEADERS) - 1][0] == CUT:
            behind = headers[-len(HEADERS) :]
            told = dict(behind)
            if told.get(f"{PREFIX}topic") == self._topic:
                self._behind[told.get(f"{PREFIX}partition"), told.get(f"{PREFIX}offset")] = _size(behind)

    def copy(self, record: Record) -> Record:
        """What a dead letter of this source record must hold."""
        behind = self._behind.get((b"%d" % record.partition, b"%d" % record.offset)) if self._behind else None
        if behind is None:
            return record
        key, value = record.key or b"", record.value or b""
        headers = _size(record.headers)
        if FRAME_BYTES + len(key) + len(value) + headers + behind <= self._limit:
            return record
        mark: Headers = [(CUT, b"%d,%d,%d" % (len(key), len(value), headers))]
        room = self._limit - 2 * FRAME_BYTES - behind - _size(mark)
        kept = record.headers if headers <= room // 2 else []
        room -= FRAME_BYTES + _size(kept)
        most = max(room // 2, 0)
        return record._replace(
            key=None if record.key is None else key[:most],
            value=None if record.value is None else value[: max(room - min(len(key), most), 0)],
            headers=[*kept, *mark],
        )


def read_letter(record: Record) -> tuple[str, bytes]:
    """Reason and digest of a dead letter as it stands; one that lacks a header matches nothing that is expected."""
    count = len(HEADERS)
    original = record._replace(headers=record.headers[:-count])
    appended = dict(record.headers[-count:])
    if appended.keys() != {PREFIX + name for name in HEADERS}:
        return UNKNOWN_REASON, digest((record.key, record.value, *flat(record.headers)))
    told = (appended[f"{PREFIX}reason"] or b"").decode(errors="replace")
    place = [appended[PREFIX + name] for name in ("topic", "partition", "offset", "timestamp")]
    reason = told if told in {*REASONS, *CODEC} else UNKNOWN_REASON
    return reason, told_digest(told, letter_digest(original, place))


def letter_digest(original: Record, place: Sequence[bytes | None]) -> bytes:
    """Digest of a dead letter but for its reason: from where (topic, partition, offset, timestamp), and its bytes."""
    return digest((*place, original.key, original.value, *flat(original.headers)))


def told_digest(reason: str, letter: bytes) -> bytes:
    """Digest of a dead letter with its reason."""
    return digest((reason.encode(), letter))


def _size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in headers)
