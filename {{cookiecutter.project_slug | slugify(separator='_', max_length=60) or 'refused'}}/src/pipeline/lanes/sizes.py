"""How large a record is for its topic, known before it is produced.

Guarantee: what passes is taken by the broker. One record that it refuses would abort the transaction, again and again,
and hold up the lane; so the topic's `max.message.bytes` is asked once, and compared with each record's uncompressed
size. A record that would fit only when compressed is refused as well: how well it compresses is nothing to rely on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.lanes.transaction import Headers, Sendable

# The head of a batch takes 61 bytes, that of a record at most 36; lengths of a header's name and value, 10.
RECORD_BYTES = 128
HEADER_BYTES = 10


def size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """The most bytes that a record takes in a batch of its own."""
    return len(key or b"") + len(value or b"") + RECORD_BYTES + headers_size(headers)


def headers_size(headers: Headers | None) -> int:
    """The most bytes that the headers of a record take."""
    return sum(len(name.encode()) + len(item or b"") + HEADER_BYTES for name, item in headers or ())


def too_large(outputs: Sequence[Sendable], limits: Mapping[str, int]) -> str | None:
    """Which of a record's outputs its topic does not take; all of them stay out then."""
    for topic, key, value, headers in outputs:
        limit = limits.get(topic)
        if limit is not None and (found := size(key, value, headers)) > limit:
            return f"its output to {topic} has {found} bytes, the topic takes {limit} (max.message.bytes)"
    return None
