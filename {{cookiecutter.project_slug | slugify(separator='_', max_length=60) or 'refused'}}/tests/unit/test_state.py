"""`pipeline state`: what the lanes hold, added up, and what bounds it."""

from __future__ import annotations

import json
from dataclasses import replace

from rich.console import Console
from tests.support.lanes import settings_for

from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.cost import cost
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.record import Counters, LaneRecord
from pipeline.lanes.token import Token
from pipeline.observe.state import bounds, gathered, show

SETTINGS = settings_for("localhost:1", "payments")
TILL = ProducerState("till", 3, None, [1, 2], [0, 0], [9, 4], [7, 8])
LANE = LaneRecord("app", "payments", (1, 2), 0, 1, 0, 5, Columns.of([TILL]), Counters(), "1")


def test_the_ledgers_of_all_lanes_are_added_up_by_producer() -> None:
    shop = ProducerState("shop\x1b[2J", 0, None, [0], [5], [5], [])
    later = TILL._replace(epoch=4, txns=[7], firsts=[1], lasts=[1])
    lanes = [
        LANE,
        replace(LANE, partition=1, producers=Columns.of([later, shop])),
    ]
    state = gathered(SETTINGS, lanes)
    till = state.producers["till"]
    assert (till.lanes, till.epoch, till.newest, till.ids, till.ranges, till.hashes) == (2, 4, (7, 1), 16, 3, 4)
    assert state.ledger_bytes == sum(cost(lane.producers) for lane in lanes)
    assert state.largest_lane_bytes == max(cost(lane.producers) for lane in lanes)
    assert json.loads(json.dumps(state.as_dict()))["producers"][0]["name"] == "till"


def test_what_bounds_a_ledger_is_said_with_what_does_not() -> None:
    ledger = Ledger(SETTINGS.dedup.model_copy(update={"ledger_bytes": 1_024}))
    for number in range(100):
        assert ledger.judge(Identity(f"till-{number}", 0, 0, 1), 0) == "fresh"
    assert 60 < ledger.size_bytes / 100 < 80
    assert "never the newest one of a producer, which takes about 70 bytes" in bounds(SETTINGS)[1]


def test_a_hostile_name_is_shown_escaped_and_few_producers_are_shown() -> None:
    names = [ProducerState(f"p{number}\x1b[2J", 0, None, [0], [5], [5], []) for number in range(30)]
    console = Console(width=200)
    with console.capture() as shown:
        show(gathered(SETTINGS, [replace(LANE, producers=Columns.of(names))]), console, most=10)
    assert "\x1b[2J" not in shown.get()
    assert "\\x1b[2J" in shown.get()
    assert "and 20 more" in shown.get()


def test_on_the_shuffled_path_the_newest_lane_tells_what_spark_holds() -> None:
    settings = SETTINGS.model_copy(update={"dedup": SETTINGS.dedup.model_copy(update={"strategy": "window"})})
    tokens = [Token("query", batch, 2, b"", (5, 5), 1_000, 10 * batch, 100 * batch) for batch in (7, 8)]
    state = gathered(settings, [replace(LANE, token=token, producers=Columns.of([])) for token in reversed(tokens)])
    assert (state.path, state.batch, state.state_rows, state.state_bytes) == ("shuffled", 8, 80, 800)
    assert state.watermark == "1970-01-01T00:00:01+00:00"
    console = Console(width=200)
    with console.capture() as shown:
        show(state, console, most=10)
    assert "80 rows, 800 bytes" in shown.get()
    assert "dedup.horizon_seconds = 3600" in shown.get()
