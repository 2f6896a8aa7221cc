"""Rows: what Spark hands over becomes plain rows, checked against the lane and range, and cut into chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.rows import OUTPUT, Row, arrow, columnar, output

from pipeline.errors import SafeStop
from pipeline.lanes.emitted import emitted
from pipeline.lanes.identity import parse
from pipeline.lanes.rows import Chunk, chunks, lane_rows
from pipeline.sections import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.lanes.rows import Rows

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None, max_examples=50)

FOREVER = 1e9
IDENTITY = Identity()
binary = st.none() | st.binary(max_size=4)
headers = st.none() | st.lists(st.tuples(st.text(max_size=3), binary), max_size=3)
sendables = st.lists(st.tuples(st.sampled_from(["receipts", "alerts"]), binary, binary, headers), max_size=3)
longs = st.integers(-(2**63), 2**63 - 1)
contents = st.tuples(longs, binary, binary, binary, binary, st.booleans(), longs, st.none() | st.text(), sendables)


def one_by_one(rows: Rows) -> list[Any]:
    """Return rows as they were before they became columns; a stamp as the identity that is read of it."""
    stamps = rows.stamps
    identities = zip(
        stamps.producers.tolist(), stamps.epochs.tolist(), stamps.txns.tolist(), stamps.seqs.tolist(), strict=True
    )
    read = [
        (stamps.names[who], *numbers) if sound else None
        for (who, *numbers), sound in zip(identities, stamps.sound.tolist(), strict=True)
    ]
    errors = [rows.errors.get(row) for row in range(len(rows))]
    flat = (rows.offsets.tolist(), rows.timestamps.tolist(), read, rows.digests.tolist(), errors)
    return list(zip(*flat, rows.emitted.by_row(), strict=True))


def wanted(row: Row) -> tuple[Any, ...]:
    """Return what a row must come out as."""
    identity = None if row[6] else parse(*row[2:6])
    return (*row[:2], None if identity is None else tuple(identity), *row[7:])


def plain(*offsets: int) -> list[Row]:
    """Return rows at these offsets, otherwise alike."""
    return [(offset, 0, b"p", b"0", b"0", b"0", False, 0, None, []) for offset in offsets]


def read(*batches: list[Row], partition: int = 0, first: int = 0, until: int = 100) -> list[int]:
    """Return the offsets of the rows that pass the checks."""
    found = lane_rows(map(arrow, batches), partition, first, until, IDENTITY)
    return [offset for rows in found for offset in rows.offsets.tolist()]


@quiet
@given(st.lists(contents, max_size=6), st.data())
def test_rows_come_out_of_arrow_as_they_went_in_also_from_a_slice(parts: list[Any], data: st.DataObject) -> None:
    rows: list[Row] = [(offset, *part) for offset, part in enumerate(parts)]
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    batch = arrow(rows).slice(begin, end - begin)
    found = [row for part in lane_rows([batch], 0, 0, 100, IDENTITY) for row in one_by_one(part)]
    assert found == [wanted(row) for row in rows[begin:end]]


def test_a_row_without_an_outputs_array_has_no_outputs_and_leaves_its_neighbours_theirs() -> None:
    one = output(*(sent := ("t", b"k", b"v", None)))
    column = pa.array([[one], None, [], [one, one]], pa.list_(OUTPUT))
    made, wrong = emitted(column)
    assert (made.by_row(), wrong) == ([[sent], [], [], [sent, sent]], {})


def test_an_output_whose_condition_does_not_hold_is_left_out() -> None:
    sent = ("receipts", b"k", b"v", None)
    column = pa.array([[None, output(*sent)], [None, None], [output(*sent), None, output(*sent)]], pa.list_(OUTPUT))
    made, wrong = emitted(column)
    assert (made.by_row(), wrong) == ([[sent], [], [sent, sent]], {})


@pytest.mark.bad_input("identity header of a megabyte", "identity")
def test_a_stamp_of_a_megabyte_is_no_identity() -> None:
    large = b"1" * 1_000_000
    stamps = [
        (large, b"0", b"1", b"0"),
        (b"p", large, b"1", b"0"),
        (b"p", b"0", large, b"0"),
        (b"p", b"0", b"1", large),
    ]
    rows: list[Row] = [(offset, 0, *stamp, False, 0, None, []) for offset, stamp in enumerate(stamps)]
    assert not columnar(rows).stamps.sound.any()


def test_empty_batches_are_passed_over() -> None:
    assert read([], plain(3), [], plain(4)) == [3, 4]


def test_a_row_of_another_partition_stops_the_job() -> None:
    with pytest.raises(SafeStop, match=r"rows of partition \[7\] reached lane 0"):
        list(lane_rows([arrow(plain(1), partition=7)], 0, 0, 10, IDENTITY))


@pytest.mark.parametrize("batches", [(plain(1, 2, 2),), (plain(1, 2), plain(2))], ids=["in a batch", "across batches"])
def test_an_offset_that_comes_twice_stops_the_job(batches: tuple[list[Row], ...]) -> None:
    with pytest.raises(SafeStop, match="offset 2 after 2: the user's function multiplied rows"):
        read(*batches)


@pytest.mark.parametrize("batches", [(plain(1, 3, 2),), (plain(1, 3), plain(2))], ids=["in a batch", "across batches"])
def test_an_offset_that_falls_stops_the_job(batches: tuple[list[Row], ...]) -> None:
    with pytest.raises(SafeStop, match="offset 2 after 3: the user's function reordered rows"):
        read(*batches)


def test_a_row_before_its_range_stops_the_job() -> None:
    with pytest.raises(SafeStop, match="partition 0, offset 4 after 9"):
        read(plain(4), first=10)


def test_the_first_offset_of_a_range_belongs_to_it_and_its_end_does_not() -> None:
    assert read(plain(5, 9), first=5, until=10) == [5, 9]
    with pytest.raises(SafeStop, match="offset 10 lies beyond the batch's end 10"):
        read(plain(5, 10), first=5, until=10)


def cut(batches: list[list[Row]], until: int, *, first: int = 0, max_rows: int = 1_000) -> list[Chunk]:
    """Return the chunks of a range without a limit in time."""
    return list(chunks(map(columnar, batches), first, until, max_rows=max_rows, max_seconds=FOREVER))


def bounds(found: list[Chunk]) -> list[tuple[int, int, int]]:
    """Return begin, end and number of rows of each chunk."""
    return [(chunk.first, chunk.until, len(chunk)) for chunk in found]


def test_a_range_is_cut_by_rows_and_its_last_chunk_reaches_the_end() -> None:
    found = cut([plain(*range(5)), plain(*range(5, 10))], 12, max_rows=4)
    assert bounds(found) == [(0, 4, 4), (4, 8, 4), (8, 12, 2)]


def test_a_range_of_exactly_one_chunk_is_not_cut() -> None:
    assert bounds(cut([plain(*range(4))], 4, max_rows=4)) == [(0, 4, 4)]


def test_a_range_without_rows_is_one_chunk_that_reaches_its_end() -> None:
    assert bounds(cut([], 7, first=3)) == [(3, 7, 0)]


def test_an_empty_range_has_no_chunk() -> None:
    assert cut([], 3, first=3) == []


def test_a_range_of_large_outputs_is_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lanes.rows.CHUNK_BYTES", 1_000)
    large: list[list[Row]] = [[(*row[:-1], [("out", b"k", bytes(300), None)])] for row in plain(*range(7))]
    assert bounds(cut(large, 8)) == [(0, 3, 3), (3, 6, 3), (6, 8, 1)]


def test_a_slow_range_is_cut_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pipeline.lanes.rows.time", SimpleNamespace(monotonic=lambda: now))

    def slow() -> Iterator[list[Row]]:
        nonlocal now
        for offset in range(6):
            now += 2.0
            yield plain(offset)

    found = list(chunks(map(columnar, slow()), 0, 6, max_rows=1_000, max_seconds=3.0))
    assert bounds(found) == [(0, 2, 2), (2, 4, 2), (4, 6, 2)]


def test_a_gap_in_the_offsets_belongs_to_the_chunk_behind_it() -> None:
    assert bounds(cut([plain(0, 1, 50, 51)], 60, max_rows=2)) == [(0, 2, 2), (2, 60, 2)]


@quiet
@given(
    st.lists(st.integers(0, 60), unique=True).map(sorted),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_chunks_hold_every_row_once_and_follow_each_other_without_a_gap(
    offsets: list[int], size: int, max_rows: int, rest: int
) -> None:
    rows = plain(*offsets)
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    until = (offsets[-1] + 1 if offsets else 0) + rest
    found = cut(batches, until, max_rows=max_rows)
    held = [[row for part in chunk.parts for row in one_by_one(part)] for chunk in found]
    assert [row for rows_of_chunk in held for row in rows_of_chunk] == [wanted(row) for row in rows]
    assert [chunk.first for chunk in found] == [0, *(chunk.until for chunk in found)][: len(found)]
    assert (found[-1].until if found else 0) == until
    assert all(len(chunk) <= max_rows for chunk in found)
    assert all(
        chunk.first <= row[0] < chunk.until
        for chunk, rows_of_chunk in zip(found, held, strict=True)
        for row in rows_of_chunk
    )
