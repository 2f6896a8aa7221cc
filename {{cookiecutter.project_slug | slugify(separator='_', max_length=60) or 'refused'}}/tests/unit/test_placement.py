"""A key stands in one partition, or a topic that has grown explains each of those it stands in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.observe.audit.placement import growth, key_hash
from pipeline.observe.audit.tally import Tally

TOPIC = "receipts"
LANES = 3
ROWS = 300

# What Java's own partitioner makes of these keys.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_of_a_key_is_that_of_java(key: bytes) -> None:
    assert key_hash(key) == JAVA[key] & 0x7FFFFFFF


def written(*eras: tuple[int, int], moved: int | None = None) -> Tally:
    """Return what lanes wrote while their topic had so many partitions, up to so many rows each; one row moved."""
    tally = Tally((TOPIC,))
    for lane in range(LANES):
        for row in range(ROWS):
            count = next(count for count, until in eras if row < until)
            key, content = b"key-%d" % (row % 40), b"%07d-%08d" % (lane, row)
            partition = key_hash(key) % count
            if row == moved and lane == 1:
                partition = (partition + 1) % count
            tally.expect(TOPIC, key, content, (lane, row, 0))
            tally.find(TOPIC, key, content, partition, lane * ROWS + row)
    return tally


def explained(tally: Tally, today: int) -> tuple[int, ...] | None:
    """Return the growth that explains all records; there must be something to explain."""
    assert tally.compare().split
    return growth(tally.traces(TOPIC), today)


def test_a_topic_that_never_grew_has_no_split_keys() -> None:
    assert written((5, ROWS)).compare().split == []


@pytest.mark.parametrize("eras", [((3, 100), (5, ROWS)), ((2, 10), (4, 250), (7, ROWS)), ((4, 299), (8, ROWS))])
def test_keys_of_a_topic_that_has_grown_are_explained(eras: tuple[tuple[int, int], ...]) -> None:
    counts = tuple(count for count, _ in eras)
    assert explained(written(*eras), counts[-1]) == counts


@pytest.mark.thorough
@given(moved=st.integers(min_value=120, max_value=ROWS - 1))
def test_one_record_that_stands_elsewhere_is_explained_by_no_growth(moved: int) -> None:
    assert explained(written((5, ROWS), moved=moved), 5) is None
    assert explained(written((3, 100), (5, ROWS), moved=moved), 5) is None


def test_a_topic_cannot_have_shrunk() -> None:
    assert explained(written((5, 100), (3, ROWS)), 5) is None
