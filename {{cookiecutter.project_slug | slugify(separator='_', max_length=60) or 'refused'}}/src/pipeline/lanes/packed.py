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
MOST_OF_TWO = (1 << (2 * BITS)) - 1
# Numbers of one byte or two are written and read side by side, those beyond by themselves, where they are so few: one
# in so many.
FEW_BEYOND = 64


def packed(numbers: NDArray[np.uint64]) -> bytes:
    """Write numbers."""
    large = numbers >= MORE
    if not large.any():  # most columns
        return numbers.astype(np.uint8).tobytes()
    beyond = np.flatnonzero(numbers > MOST_OF_TWO)
    if len(beyond) * FEW_BEYOND > len(numbers):
        return _packed(numbers)
    # Two bytes for each, of which the second may be left out; the few that need more are put in between.
    short = numbers.astype(np.uint16)
    pairs = short + (short & (MOST_OF_TWO - MORE + 1)) | large * np.uint16(MORE)
    wanted = np.empty((len(numbers), 2), bool)
    wanted[:, 0], wanted[:, 1] = True, large
    wanted[beyond] = False
    # By their places: numpy takes three times as long where it is given what is wanted itself.
    octets = pairs.astype("<u2", copy=False).view(np.uint8)[np.flatnonzero(wanted)].tobytes()
    pieces, start, done = [], 0, 0
    for place in beyond.tolist():
        end = start + (place - done) + int(np.count_nonzero(large[done:place]))
        pieces += [octets[start:end], _one(int(numbers[place]))]
        start, done = end, place + 1
    return b"".join((*pieces, octets[start:]))


def _one(number: int) -> bytes:
    """Write one number."""
    octets = bytearray()
    while number >= MORE:
        octets.append(number & (MORE - 1) | MORE)
        number >>= BITS
    octets.append(number)
    return bytes(octets)


def _packed(numbers: NDArray[np.uint64]) -> bytes:
    """Whatever their size."""
    large = np.flatnonzero(numbers >= MORE)
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
    found = int(np.count_nonzero(last))
    if found != count or (len(octets) and not last[-1]):
        msg = f"{found} numbers where {count} are due"
        raise ValueError(msg)
    if len(octets) == count:
        return octets.astype(np.uint64)
    ends = np.flatnonzero(last)
    beyond = np.flatnonzero(~(last[1:] | last[:-1]))
    if len(beyond) * FEW_BEYOND > count:
        return _unpacked(octets, np.concatenate(([0], ends[:-1] + 1)), ends)
    # Each with the byte before it, if that is its own; the few that have more are read by themselves.
    before, values = octets[ends - 1], octets[ends].astype(np.uint16)
    values += (values * (MORE - 1) + (before & (MORE - 1))) * (before >= MORE)
    numbers = values.astype(np.uint64)
    if len(beyond):
        places = np.unique(np.searchsorted(ends, beyond))
        numbers[places] = _unpacked(octets, np.where(places, ends[places - 1] + 1, 0), ends[places])
    return numbers


def _unpacked(octets: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers of any size, from their first bytes to their last."""
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
