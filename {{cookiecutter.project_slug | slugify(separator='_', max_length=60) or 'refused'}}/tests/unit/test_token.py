"""The token rule: one table of what is found and what is planned; and tokens in lane records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import SafeStop
from pipeline.lanes.columns import Columns
from pipeline.lanes.record import Counters, LaneRecord, decode, encode
from pipeline.lanes.token import Planned, Token, is_written, lanes_with

BATCH = Planned("query", 7, (10, 20), (15, 20), 1_000, 2_000)
BEFORE = Token("query", 6, 2, b"another", (10, 20))


def lane_record(token: Token | None, next_offset: int = 15) -> LaneRecord:
    """Return the record of lane 0."""
    return LaneRecord("app", "topic", (1, 2), 0, 3, 0, next_offset, Columns.of([]), Counters(), "1", token)


def test_the_token_of_this_batch_is_skipped() -> None:
    assert is_written(BATCH.token(), BATCH, 0, 0)


def test_the_token_of_the_batch_before_is_written() -> None:
    assert not is_written(BEFORE, BATCH, 0, 0)


def test_a_lane_without_a_token_writes_the_first_batch_of_all() -> None:
    first = replace(BATCH, batch_id=0)
    assert not is_written(None, first, 10, 0)
    assert not is_written(None, first, 20, 1)


def test_what_spark_held_does_not_tell_two_tokens_apart() -> None:
    assert is_written(BATCH.token(state_rows=5, state_bytes=6), BATCH, 0, 0)


@pytest.mark.parametrize(
    ("found", "planned", "line"),
    [
        (
            None,
            BATCH,
            "has written nothing yet and begins at offset 10, but the checkpoint goes on with batch 7",
        ),
        (
            None,
            replace(BATCH, batch_id=0, firsts=(11, 20)),
            "begins at offset 10, but the checkpoint goes on with batch 0",
        ),
        (replace(BEFORE, lanes=3, offsets=(10, 20, 0)), BATCH, "batch 6 of 3 lanes, but now there are 2"),
        (replace(BATCH.token(), lanes=3), BATCH, "batch 7 of 3 lanes, but now there are 2"),
        (
            replace(BEFORE, query_id="other"),
            BATCH,
            "written by query other up to batch 6, but the checkpoint is",
        ),
        (replace(BATCH.token(), query_id="other"), BATCH, "written by query other up to batch 7"),
        (BATCH.token(), replace(BATCH, offsets=(16, 20)), "the replay diverges"),
        (BATCH.token(), replace(BATCH, watermark_ms=999), "the replay diverges"),
        (BATCH.token(), replace(BATCH, time_ms=2_001), "the replay diverges"),
        (
            replace(BEFORE, batch_id=5),
            BATCH,
            "stands at batch 5, offsets [10, 20], but the checkpoint",
        ),
        (replace(BEFORE, batch_id=8), BATCH, "stands at batch 8"),
        (replace(BEFORE, offsets=(10, 19)), BATCH, "stands at batch 6, offsets [10, 19]"),
    ],
)
def test_anything_else_stops_the_job_with_a_line_that_says_which(
    found: Token | None, planned: Planned, line: str
) -> None:
    with pytest.raises(SafeStop) as stopped:
        is_written(found, planned, 10, 0)
    assert line in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_no_lane_writes_what_another_one_cannot_follow() -> None:
    """Lane 1 alone could write batch 7 as it is cut now; lane 0 has it as it was cut before."""
    found = {0: (BATCH.token(), 0), 1: (BEFORE, 0)}
    assert lanes_with(found, BATCH) == [0]
    cut_anew = replace(BATCH, offsets=(16, 20))
    assert not is_written(BEFORE, cut_anew, 0, 1)
    with pytest.raises(SafeStop, match=r"lane 0 has written batch 7 .* the replay diverges"):
        lanes_with(found, cut_anew)


@pytest.mark.parametrize(
    ("other", "what"), [(replace(BATCH, code=b"other"), "code"), (replace(BATCH, settings=b"other"), "settings")]
)
def test_a_batch_that_some_lanes_have_is_finished_by_what_began_it(other: Planned, what: str) -> None:
    for found in ({0: (BATCH.token(), 0), 1: (BEFORE, 0)}, {0: (BEFORE, 0), 1: (BATCH.token(), 0)}):
        with pytest.raises(
            SafeStop, match=f"finish batch 7 with the {what} that began it: .*--until-caught-up"
        ) as stop:
            lanes_with(found, other)
        assert "\n" not in str(stop.value)
    assert lanes_with({0: (BEFORE, 0), 1: (BEFORE, 0)}, other) == []


def test_other_settings_wait_for_spark_to_be_done_with_a_batch_and_other_code_for_the_lanes_alone() -> None:
    everywhere = {0: (BATCH.token(), 0), 1: (BATCH.token(), 0)}
    assert lanes_with(everywhere, replace(BATCH, code=b"other")) == [0, 1]
    with pytest.raises(SafeStop, match="finish batch 7 with the settings that began it"):
        lanes_with(everywhere, replace(BATCH, settings=b"other"))


@given(
    st.builds(
        Token,
        query_id=st.text(),
        batch_id=st.integers(0, 2**62),
        lanes=st.just(2),
        digest=st.binary(),
        offsets=st.tuples(st.just(15), st.integers(0, 2**62)),
        watermark_ms=st.integers(-(2**62), 2**62),
        state_rows=st.integers(0, 2**62),
        state_bytes=st.integers(0, 2**62),
        code=st.binary(),
        settings=st.binary(),
    )
)
def test_a_token_is_read_as_it_was_written(token: Token) -> None:
    record = lane_record(token)
    assert decode(encode(record)) == record


def test_a_record_without_a_token_is_of_version_2_and_one_with_it_of_version_3() -> None:
    plain, whole = encode(lane_record(None)), encode(lane_record(BATCH.token()))
    assert (plain[0], whole[0]) == (2, 3)
    assert whole[1:].startswith(plain[1:])


def test_a_token_that_is_cut_or_contradicts_its_record_stops_the_job() -> None:
    whole = encode(lane_record(BATCH.token()))
    for data in (whole[:-1], whole + b"x", encode(lane_record(BATCH.token(), next_offset=14))):
        with pytest.raises(SafeStop, match="damaged"):
            decode(data)
