"""Packed numbers come back as they were, and whatever else is found is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes.packed import packed, unpacked

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)

edges = st.sampled_from([0, 1, 127, 128, 2**14 - 1, 2**14, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
numbers = st.lists(st.one_of(edges, st.integers(0, 2**64 - 1), st.integers(0, 300)), max_size=50)


@quiet
@given(numbers)
def test_numbers_come_back_as_they_were_written(given_numbers: list[int]) -> None:
    data = packed(np.array(given_numbers, np.uint64))
    assert unpacked(data, len(given_numbers)).tolist() == given_numbers


def one_by_one(given_numbers: list[int]) -> bytes:
    """What the format says, number by number."""
    octets = []
    for given_number in given_numbers:
        left = given_number
        while left >= 128:
            octets.append(left % 128 + 128)
            left //= 128
        octets.append(left)
    return bytes(octets)


@quiet
@given(st.lists(st.integers(0, 2**14 - 1), min_size=200, max_size=400), st.dictionaries(st.integers(0, 199), edges))
def test_many_small_numbers_with_few_large_ones_are_written_as_each_by_itself(
    small: list[int], others: dict[int, int]
) -> None:
    given_numbers = [others.get(place, number) for place, number in enumerate(small)]
    data = packed(np.array(given_numbers, np.uint64))
    assert data == one_by_one(given_numbers)
    assert unpacked(data, len(given_numbers)).tolist() == given_numbers


@pytest.mark.parametrize(("number", "data"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_the_bytes_are_fixed(number: int, data: str) -> None:
    assert packed(np.array([number], np.uint64)).hex() == data


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"", 1), (b"\x00", 0), (b"\x00", 2), (b"\x80", 0), (b"\x80", 1), (b"\x00\x80", 1), (b"\xff" * 10 + b"\x01", 1)],
)
def test_what_is_cut_off_too_long_or_too_wide_is_refused(data: bytes, count: int) -> None:
    with pytest.raises(ValueError, match=r"numbers where|more than 64 bits"):
        unpacked(data, count)


@quiet
@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_numbers_or_refused(data: bytes, count: int) -> None:
    try:
        found = unpacked(data, count)
    except ValueError:
        return
    assert len(found) == count
