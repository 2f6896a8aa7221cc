"""What the audit reads, as plain values, and the 16-byte digests that it keeps of them.

Guarantee: two records have the same digest only if all their parts are equal, nulls told from empty bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Headers = list[tuple[str, bytes | None]]

# One output of the user's function: topic, key, value, headers.
Output: TypeAlias = "tuple[str, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]] | None]"
# What it makes of one source record: source partition, offset, outputs in order; or the reason why there can be none.
Expected: TypeAlias = "tuple[int, int, Sequence[Output] | str]"
# Told (stage, records so far) from time to time.
Progress: TypeAlias = "Callable[[str, int], None]"

DIGEST_BYTES = 16


class Record(NamedTuple):
    """One committed record of any topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Ends(NamedTuple):
    """Where a partition ends for a read_committed reader, and where its log ends."""

    stable: int
    end: int


def digest(parts: Iterable[bytes | None]) -> bytes:
    """Sixteen bytes for a list of parts; each part is preceded by its length, so no two lists look alike."""
    joined = b"".join([b"-" if part is None else b"%d:%b" % (len(part), part) for part in parts])
    return blake2b(joined, digest_size=DIGEST_BYTES).digest()


def flat(headers: Iterable[tuple[str, bytes | None]] | None) -> list[bytes | None]:
    """Names and values of headers in one row, in their order."""
    parts: list[bytes | None] = []
    for name, value in headers or ():
        parts += (name.encode(), value)
    return parts
