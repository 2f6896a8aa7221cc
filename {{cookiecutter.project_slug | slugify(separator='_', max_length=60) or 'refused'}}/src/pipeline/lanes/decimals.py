"""Decimal text of many headers at once: numbers without a Python object for each.

Guarantee: a text is a number here exactly if `identity.parse` takes it: ASCII digits alone, no longer than the widest
number of its type, and not above the highest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ZERO = ord("0")
NINE = 9


def decimals(values: Any, places: NDArray[np.int64], digits: int, highest: int) -> tuple[Any, NDArray[np.bool_]]:
    """The numbers at these places of a column of bytes, and which of them are sound; `digits` are 19 at most."""
    starts, lengths = extents(values)
    starts, lengths = starts[places], lengths[places]
    sound = (lengths > 0) & (lengths <= digits) & valid(values)[places]
    numbers = np.zeros(len(places), np.uint64)
    data = values.buffers()[2]
    if data is None or not sound.any():
        return numbers.astype(np.int64), np.zeros(len(places), bool)
    text = np.frombuffer(data, np.uint8)
    shortest = int(lengths[sound].min())
    for place in range(int(lengths[sound].max())):
        digit = text[np.minimum(starts + place, len(text) - 1)] - ZERO  # below "0" it wraps, and is above 9
        longer = numbers * 10 + digit
        if place < shortest:
            numbers, sound = longer, sound & (digit <= NINE)
        else:
            more = lengths > place
            numbers, sound = np.where(more, longer, numbers), sound & ((digit <= NINE) | ~more)
    sound &= numbers <= highest
    return np.where(sound, numbers, 0).astype(np.int64), sound


def extents(values: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each value of a column of bytes begins in its buffer, and how long it is."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)


def valid(values: Any) -> NDArray[np.bool_]:
    """Which values of a column are not null."""
    if not values.null_count:
        return np.ones(len(values), bool)
    found: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return found
