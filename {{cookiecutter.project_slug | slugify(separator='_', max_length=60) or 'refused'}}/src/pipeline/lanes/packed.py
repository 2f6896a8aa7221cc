"""Many small numbers as few bytes: seven bits to a byte, the lowest first, the eighth says that more follow.

Guarantee: `unpacked(packed(numbers)) == numbers` for all from 0 to 2**64 - 1; bytes that are no such numbers, or not as
many as asked for, are a ValueError. A whole column at a time: one by one it would take longer than all else in a lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS = 7
MORE = 0x80
MOST_BYTES = 10  # of 64 bits


def packed(numbers: NDArray[np.uint64]) -> bytes:
    """Write numbers."""
    lengths = np.ones(len(numbers), np.int64)
    for place in range(1, MOST_BYTES):
        longer = numbers >= np.uint64(1 << (BITS * place))
        if not longer.any():
            break
        lengths += longer
    ends = lengths.cumsum()
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - lengths
    for place in range(int(lengths.max(initial=0))):
        held = np.flatnonzero(lengths > place)
        part = (numbers[held] >> np.uint64(BITS * place)).astype(np.uint8) & (MORE - 1)
        out[starts[held] + place] = part | np.where(lengths[held] > place + 1, MORE, 0).astype(np.uint8)
    return out.tobytes()


def unpacked(data: bytes, count: int) -> NDArray[np.uint64]:
    """Read so many numbers."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets < MORE)
    if len(ends) != count or (len(octets) and ends[-1] != len(octets) - 1 if count else len(octets)):
        msg = f"{len(ends)} numbers where {count} are due"
        raise ValueError(msg)
    starts = np.concatenate(([0], ends[:-1] + 1)) if count else ends
    lengths = ends - starts + 1
    numbers = np.zeros(count, np.uint64)
    for place in range(int(lengths.max(initial=0))):
        if place == MOST_BYTES:
            msg = "a number of more than 64 bits"
            raise ValueError(msg)
        held = np.flatnonzero(lengths > place)
        numbers[held] |= (octets[starts[held] + place] & (MORE - 1)).astype(np.uint64) << np.uint64(BITS * place)
    return numbers
