"""A shuffled batch before its tasks begin: all lanes can follow, the clock stands right, and what the state held."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.figures import lane, settings_of

from pipeline.errors import SafeStop
from pipeline.flow import shuffled
from pipeline.flow.planned import check_all, last_held, state_of
from pipeline.flow.transform import transform
from pipeline.lanes.recall import Recalled
from pipeline.lanes.record import encode
from pipeline.lanes.token import Planned, Token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.settings import Settings

BEFORE = Planned("query", 6, (0, 0), (10, 20), 500, 1_000)
BATCH = Planned("query", 7, (10, 20), (15, 25), 1_000, 2_000)


def settings(**dedup: Any) -> Settings:
    """Return settings of the shuffled path."""
    return settings_of(dedup={"strategy": "window", **dedup}, spark={"checkpoint": "x"})


def recalled(*tokens: Token | None) -> Mapping[int, Recalled]:
    """Return what the driver knows of lanes that have these."""
    found = {}
    for number, token in enumerate(tokens):
        record = replace(lane(number, 0 if token is None else token.offsets[number]), token=token)
        found[number] = Recalled(encode(record), 9)
    return found


def test_a_batch_begins_only_if_every_lane_can_skip_or_write_it() -> None:
    known = recalled(BATCH.token(), BEFORE.token())
    check_all(BATCH, settings(), "file:///x", known)
    with pytest.raises(SafeStop, match=r"lane 0 has written batch 7 .* the replay diverges"):
        check_all(replace(BATCH, offsets=(15, 26)), settings(), "file:///x", known)


def test_no_task_begins_if_one_lane_must_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled, "planned", lambda *_: replace(BATCH, offsets=(15, 26)))
    codec: Any = SimpleNamespace(reader=SimpleNamespace(schema={}), writer="")
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[]))
    path = shuffled.Shuffled(settings(), codec, transform, "folder", {0: 0, 1: 0}, spark)
    lanes: Any = SimpleNamespace(recalled=recalled(BATCH.token(), BEFORE.token()))  # and nothing to make a task of
    batch: Any = SimpleNamespace(sparkSession=spark)
    with pytest.raises(SafeStop, match="the replay diverges"):
        path.write(batch, 7, lanes)


def test_a_clock_that_went_back_is_told_with_the_file_by_which_spark_would_repeat_its_time() -> None:
    behind = replace(BATCH, time_ms=1_000)
    known = recalled(BEFORE.token(), BEFORE.token())
    with pytest.raises(SafeStop, match=r"stood 0 s before .* no lane has it yet: .*delete /x/offsets/7 and its \.crc"):
        check_all(behind, settings(), "file:///x", known)
    with pytest.raises(SafeStop, match="some lane has it: restore the newest checkpoint") as stop:
        check_all(behind, settings(), "file:///x", recalled(behind.token(), BEFORE.token()))
    assert "delete" not in str(stop.value)
    in_time = settings_of(flow={"path": "windows"}, windows={"late": "drop"}, spark={"checkpoint": "x"})
    check_all(behind, in_time, "file:///x", known)  # windows go by the time of events


def test_before_a_run_s_first_batch_the_state_is_as_large_as_the_newest_token_says() -> None:
    known = recalled(BATCH.token(state_rows=5, state_bytes=50), BEFORE.token(state_rows=3, state_bytes=30))
    assert last_held(known) == (5, 50)
    assert last_held(recalled(None, None)) == (0, 0)
    query = SimpleNamespace(id="query", lastProgress=None)
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[query]))
    assert state_of(spark, "query", known) == (5, 50)
    assert state_of(spark, "other", known) == (5, 50)
    query.lastProgress = {"stateOperators": [{"numRowsTotal": 2, "memoryUsedBytes": 7}] * 2}
    assert state_of(spark, "query", known) == (4, 14)
