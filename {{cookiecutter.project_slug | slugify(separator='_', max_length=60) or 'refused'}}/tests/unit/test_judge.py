"""Judge: every row of a chunk ends as output, dedup hit, dead letter or drop, and the counters add up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.rows import Row, columnar

from pipeline.lanes.columns import Columns
from pipeline.lanes.judge import judge
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.record import Counters, LaneRecord, added, decode, encode
from pipeline.lanes.writer import advance
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from pipeline.lanes.judge import Judged
    from pipeline.lanes.transaction import Sendable

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None, max_examples=50)

ONE: list[Sendable] = [("receipts", b"k", b"v", None)]
TWO: list[Sendable] = [*ONE, ("alerts", b"k", b"v", None)]


def row(  # noqa: PLR0913  a row has as many parts
    offset: int,
    seq: bytes | None,
    *,
    producer: bytes | None = b"p",
    epoch: bytes = b"0",
    repeated: bool = False,
    digest: int = 0,
    error: str | None = None,
    outputs: list[Sendable] | None = None,
) -> Row:
    """Return a row of transaction 0."""
    return (offset, 0, producer, epoch, b"0", seq, repeated, digest, error, ONE if outputs is None else outputs)


def judged(*rows: Row, recent_ids: int = 100, drop_stale: bool = False) -> Judged:
    """Judge rows with a ledger that starts empty."""
    return judge([columnar(list(rows))], Ledger(Dedup(recent_ids=recent_ids)), drop_stale=drop_stale)


def reasons(result: Judged) -> list[tuple[int, str]]:
    """Return offset and reason of each dead letter."""
    return [(offset, reason) for offset, reason, _ in result.dead]


def verdicts(result: Judged) -> dict[str, int]:
    """Return the verdicts that were given at all."""
    return {name: count for name, count in result.verdicts.items() if count}


def test_a_fresh_row_is_sent_with_all_its_outputs_in_order() -> None:
    result = judged(row(0, b"0", outputs=TWO), row(1, b"1"))
    assert result.outputs == [*TWO, *ONE]
    assert (result.read, result.dropped, result.dead, verdicts(result)) == (2, 0, [], {"fresh": 2})


def test_a_fresh_row_without_outputs_was_dropped_on_purpose() -> None:
    result = judged(row(0, b"0", outputs=[]))
    assert (result.dropped, result.outputs, verdicts(result)) == (1, [], {"fresh": 1})


def test_a_second_copy_is_a_dedup_hit_and_nothing_else() -> None:
    result = judged(row(0, b"0"), row(1, b"0"))
    assert (result.outputs, result.dead, result.dropped) == (ONE, [], 0)
    assert verdicts(result) == {"fresh": 1, "duplicate": 1}


def test_the_same_identity_with_another_content_is_a_conflict_and_the_first_one_stands() -> None:
    result = judged(row(0, b"0", digest=1), row(1, b"0", digest=2, outputs=TWO))
    assert (result.outputs, reasons(result)) == (ONE, [(1, "conflict")])


def test_a_zombie_of_an_earlier_epoch_is_a_dead_letter() -> None:
    result = judged(row(0, b"0", epoch=b"5"), row(1, b"1", epoch=b"4"))
    assert (result.outputs, reasons(result)) == (ONE, [(1, "old-epoch")])


@pytest.mark.parametrize(("drop_stale", "letters"), [(False, [(3, "stale")]), (True, [])])
def test_a_stale_row_is_a_dead_letter_or_dropped_by_setting_and_counted_either_way(
    *, drop_stale: bool, letters: list[tuple[int, str]]
) -> None:
    rows = [row(offset, b"%d" % seq) for offset, seq in enumerate((0, 5, 6, 0))]
    result = judged(*rows, recent_ids=2, drop_stale=drop_stale)
    assert reasons(result) == letters
    assert verdicts(result) == {"fresh": 3, "stale": 1}
    assert len(result.outputs) == 3


@pytest.mark.parametrize(
    "bad",
    [row(0, None), row(0, b"-1"), row(0, b"0", producer=None), row(0, b"0", producer=b""), row(0, b"0", repeated=True)],
    ids=["missing", "malformed", "no producer", "empty producer", "repeated header"],
)
@pytest.mark.bad_input("identity header missing, empty, repeated, negative, beyond its type, or not digits", "identity")
def test_a_row_without_a_sound_identity_is_a_dead_letter_and_unknown_to_the_ledger(bad: Row) -> None:
    result = judged(bad, row(1, b"0"))
    assert reasons(result) == [(0, "identity")]
    assert verdicts(result) == {"fresh": 1}
    assert result.outputs == ONE


def test_an_undecodable_row_is_a_dead_letter_with_its_cause_and_is_remembered() -> None:
    result = judged(row(0, b"0", error="not JSON", outputs=[]), row(1, b"0"))
    assert result.dead == [(0, "decode", "not JSON")]
    assert (result.outputs, result.dropped) == ([], 0)
    assert verdicts(result) == {"fresh": 1, "duplicate": 1}


any_row = st.builds(
    row,
    st.just(0),
    st.sampled_from([None, b"0", b"1", b"2", b"3", b"x"]),
    epoch=st.sampled_from([b"0", b"1"]),
    repeated=st.booleans(),
    digest=st.integers(0, 1),
    error=st.sampled_from([None, "bad"]),
    outputs=st.sampled_from([[], ONE, TWO]),
)


def lane_after(pieces: list[list[Row]], *, drop_stale: bool) -> tuple[LaneRecord, list[Sendable]]:
    """Return the lane record and all that was sent when the rows are committed piece by piece."""
    lane, sent = record(next_offset=0), []
    for rows in pieces:
        ledger = Ledger(Dedup(recent_ids=2), lane.producers)
        result = judge([columnar(rows)], ledger, drop_stale=drop_stale)
        lane = decode(encode(advance(lane, lane.next_offset + len(rows), ledger, result)))
        sent += result.outputs
    # How many transactions it took is the one thing that may differ.
    return replace(lane, counters=replace(lane.counters, transactions=0)), sent


@pytest.mark.thorough
@quiet
@given(st.lists(any_row, max_size=20), st.integers(0, 20), st.booleans())
def test_chunks_may_be_cut_anywhere_and_the_lane_ends_the_same(rows: list[Row], cut: int, drop: bool) -> None:  # noqa: FBT001
    assert lane_after([rows[:cut], rows[cut:]], drop_stale=drop) == lane_after([rows], drop_stale=drop)


@quiet
@given(st.lists(any_row, max_size=20), st.booleans())
def test_every_row_is_an_output_a_dedup_hit_a_dead_letter_or_a_drop(rows: list[Row], drop: bool) -> None:  # noqa: FBT001
    # Each row's outputs name their row, so that rows with an effect can be counted in what was sent.
    named: list[Any] = [
        (*fields[:-1], [(topic, b"%d" % at, value, headers) for topic, _, value, headers in fields[-1]])
        for at, fields in enumerate(rows)
    ]
    lane, sent = lane_after([named], drop_stale=drop)
    counters = lane.counters
    hits = counters.verdicts.get("duplicate", 0) + (counters.verdicts.get("stale", 0) if drop else 0)
    with_output = len({key for _, key, _, _ in sent})
    assert counters.read == len(rows)
    assert counters.read == with_output + hits + sum(counters.dead_letters.values()) + counters.dropped
    assert counters.written == len(sent)


def record(next_offset: int) -> LaneRecord:
    """Return a lane record with nothing in it."""
    return LaneRecord("app", "topic", (1, 2), 0, 3, 0, next_offset, Columns.of([]), Counters(), "0")


def test_the_next_offset_never_falls() -> None:
    ledger = Ledger(Dedup())
    nothing = judge([], ledger, drop_stale=False)
    assert advance(record(next_offset=50), 40, ledger, nothing).next_offset == 50
    assert advance(record(next_offset=50), 60, ledger, nothing).next_offset == 60


def test_counts_are_added_and_zeros_are_kept_out() -> None:
    assert added({"a": 1, "b": 2}, {"b": 3, "c": 4, "d": 0}) == {"a": 1, "b": 5, "c": 4}
