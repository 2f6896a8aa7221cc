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
    large = np.flatnonzero(numbers >= MORE)
    if not len(large):  # most columns
        return numbers.astype(np.uint8).tobytes()
    lengths = np.ones(len(numbers), np.int64)
    values = numbers[large]
    for place in range(1, -(-int(values.max()).bit_length() // BITS)):
        lengths[large] += values >= np.uint64(1 << (BITS * place))
    starts = lengths.cumsum() - lengths
    out = np.empty(int(lengths.sum()), np.uint8)
    out[starts] = (numbers & np.uint64(MORE - 1)).astype(np.uint8) | np.where(lengths > 1, MORE, 0).astype(np.uint8)
    for place in range(1, int(lengths.max())):
        large = large[lengths[large] > place]
        part = (numbers[large] >> np.uint64(BITS * place)).astype(np.uint8) & (MORE - 1)
        out[starts[large] + place] = part | np.where(lengths[large] > place + 1, MORE, 0).astype(np.uint8)
    return out.tobytes()


def unpacked(data: bytes, count: int) -> NDArray[np.uint64]:
    """Read so many numbers."""
    octets = np.frombuffer(data, np.uint8)
    last = octets < MORE
    if len(octets) == count and last.all():
        return octets.astype(np.uint64)
    ends = np.flatnonzero(last)
    if len(ends) != count or (len(octets) and ends[-1] != len(octets) - 1 if count else len(octets)):
        msg = f"{len(ends)} numbers where {count} are due"
        raise ValueError(msg)
    starts = np.concatenate(([0], ends[:-1] + 1)) if count else ends
    lengths = ends - starts + 1
    numbers = (octets[starts] & (MORE - 1)).astype(np.uint64)
    large = np.flatnonzero(lengths > 1)
    for place in range(1, int(lengths.max(initial=0))):
        if place == MOST_BYTES:
            msg = "a number of more than 64 bits"
            raise ValueError(msg)
        large = large[lengths[large] > place]
        numbers[large] |= (octets[starts[large] + place] & (MORE - 1)).astype(np.uint64) << np.uint64(BITS * place)
    return numbers
