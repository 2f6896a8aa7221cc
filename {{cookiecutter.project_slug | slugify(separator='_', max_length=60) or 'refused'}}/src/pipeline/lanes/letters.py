"""Dead letters: source records that are kept aside with their reason, in the transaction of their chunk.

Guarantee: key, value and headers are the original bytes; reason and source position come in headers behind them. A
letter that its topic would not take is cut, so that it never holds up a lane; a header then says how long it was. So it
does of a record that no reader can unpack: nothing of it is left but its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline import __version__
from pipeline.committed import headers_of as read_headers
from pipeline.lanes.originals import originals
from pipeline.lanes.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from pipeline.lanes.transaction import Headers, Sendable
    from pipeline.settings import Settings

    Original = tuple[bytes | None, bytes | None, Headers]

# A detail may quote a decoder's message about hostile bytes: bounded, so that the letter still fits its topic.
DETAIL_CHARACTERS = 200
PREFIX = "dead-letter-"
# What was cut: bytes of key, value, headers of the original. Only then is it there, before the others.
CUT = f"{PREFIX}cut"
UNREADABLE: Original = (None, None, [(CUT, b"-1,-1,-1")])
POSITION = ("reason", "detail", "topic", "partition", "offset", "timestamp", "version")


def dead_letters(
    settings: Settings, partition: int, dead: Sequence[tuple[int, str, str]], limit: int | None = None
) -> Iterator[Sendable]:
    """Read the originals again and address them to the dead letter topic, in offset order."""
    source = settings.source
    found = originals(source.bootstrap, source.topic, partition, [offset for offset, _, _ in dead])
    for (offset, reason, detail), message in zip(dead, found, strict=True):
        told = (
            reason,
            detail[:DETAIL_CHARACTERS],
            source.topic,
            str(partition),
            str(offset),
            "-1" if message is None else str(message.timestamp()[1]),
            __version__,
        )
        position: Headers = [
            (PREFIX + name, text.encode(errors="backslashreplace")) for name, text in zip(POSITION, told, strict=True)
        ]
        # Of a record that cannot be unpacked nothing is left but its place: it stays in the source.
        original: Original = UNREADABLE
        if message is not None:
            original = (message.key(), message.value(), headers_of(message))
        if limit is not None and size(original[0], original[1], [*original[2], *position]) > limit:
            original = cut(*original, limit - size(None, None, position))
        key, value, headers = original
        yield settings.output.dead_letter_topic, key, value, [*headers, *position]


def headers_of(message: Message) -> Headers:
    """The original headers; the client cannot hand over names that are not UTF-8, and a lane must not stop for them."""
    headers = read_headers(message)
    if headers is None:
        return [(f"{PREFIX}headers", b"names of headers are not UTF-8: see the source record")]
    return headers


def cut(key: bytes | None, value: bytes | None, headers: Headers, room: int) -> Original:
    """As much of a record as fits: headers go first, then the end of the value, then of the key."""
    lengths = [len(key or b""), len(value or b""), size(None, None, headers) - size(None, None, None)]
    mark: Headers = [(CUT, ",".join(map(str, lengths)).encode())]
    room -= size(None, None, mark)
    kept = headers if lengths[2] <= room // 2 else []
    room -= size(None, None, kept)
    short_key = key if key is None else key[: max(room // 2, 0)]
    short = value if value is None else value[: max(room - len(short_key or b""), 0)]
    return short_key, short, [*kept, *mark]
