"""`window` dedup on a real broker: any id, once within the horizon, and no row lost however late it comes."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import col
from tests.support.windowed import KAFKA_MS as NOW_MS
from tests.support.windowed import WindowedApp, copied, windowed_app

from pipeline.errors import SafeStop
from pipeline.flow import shuffled, window_dedup
from pipeline.lanes.provision import provision
from pipeline.observe.state import read_state

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from pipeline.local.broker import Broker
    from pipeline.sections import Dedup

HOUR = 3_600_000
# Before now, with room for the times that a test counts from it.
KAFKA_MS = NOW_MS - HOUR


def dedup_app(broker: Broker, folder: Path, *, horizon: int = 3_600, **source: int) -> WindowedApp:
    """Return an app that knows ids for so many seconds."""
    return windowed_app(
        broker.bootstrap,
        folder,
        function=copied,
        flow={"path": "lanes"},
        dedup={"strategy": "window", "horizon_seconds": horizon},
        source=source,
    )


def sent(app: WindowedApp, ids: list[str], partition: int = 0, kafka_ms: int = KAFKA_MS) -> None:
    """Send payments with these ids, each key in one partition."""
    app.pay_at([(partition, name, f"account-{partition}", 1) for name in ids], kafka_ms)


def verdicts(app: WindowedApp) -> Counter[str]:
    """Return what all lanes have counted."""
    found: Counter[str] = Counter()
    for lane in app.lanes():
        found.update(lane.counters.verdicts)
    return found


def times_written(app: WindowedApp) -> Counter[str]:
    """Return how often each id was written."""
    return Counter(one["id"] for one in app.values())


def by_kafka_time() -> Column:
    """Stand for the time of the batch: so a test can say how late it is."""
    return col("_source.timestamp")


@pytest.mark.fault("W16")
def test_an_id_is_written_once_over_restarts_and_partitions_however_far_one_is_behind(
    broker: Broker, tmp_path: Path
) -> None:
    app = dedup_app(broker, tmp_path, max_offsets_per_trigger=60)
    ids = [f"id-{number}" for number in range(50)]
    sent(app, ids)
    sent(app, ids[:10])
    # A backlog: the other partition was stamped five hours before, brings ids of its own, and comes in later batches.
    behind = [f"behind-{number}" for number in range(150)]
    sent(app, behind, partition=1, kafka_ms=KAFKA_MS - 5 * HOUR)
    app.put([(1, 900, "till", b"no payment")])
    sent(app, ["dropped-1", "dropped-1", "dropped-2"], partition=1)
    app.go()
    sent(app, [*ids[20:], "new"], partition=1, kafka_ms=KAFKA_MS - 6 * HOUR)
    app.go()
    assert times_written(app) == Counter([*ids, *behind, "new"])
    assert verdicts(app) == {"fresh": 203, "duplicate": 41}
    assert [lane.counters.dropped for lane in app.lanes()] == [0, 2]
    app.assert_exact()
    state = read_state(app.settings)
    assert state.state_rows == 203
    [bound] = state.bounds
    assert bound.startswith("an id is held for at least dedup.horizon_seconds = 3600 after the batch that brought it")


@pytest.mark.long
@pytest.mark.fault("W16")
def test_an_id_is_known_up_to_its_horizon_and_forgotten_behind_it(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_dedup, "batch_time", by_kafka_time)
    app = dedup_app(broker, tmp_path, horizon=60)
    for seconds, ids in (
        (0, ["a", "b"]),
        (59, ["a"]),
        (60, ["b"]),
        (119, ["a", "fill"]),
        (121, ["more"]),
        (122, ["a", "b"]),
    ):
        sent(app, ids, kafka_ms=KAFKA_MS + 1_000 * seconds)
        app.go()
    # Known at 59 s and at 60 s, as promised, and at 119 s: Spark forgets what a watermark has passed by a horizon, and
    # the watermark is itself a horizon behind. At 122 s it stands at 61 s, behind the end of both.
    assert times_written(app) == {"a": 2, "b": 2, "fill": 1, "more": 1}
    assert verdicts(app) == {"fresh": 6, "duplicate": 3}
    assert [lane.token.state_rows for lane in app.lanes() if lane.token is not None] == [4, 4]
    # By the clock of the results, the two copies of both came within minutes, which is for this test to accept.
    accepted = app.audit(accept_repeats=True)
    assert accepted.exact, accepted.remarks()
    assert accepted.repeated_ids == 2


@pytest.mark.long
@pytest.mark.fault("W16")
def test_the_audit_finds_ids_that_a_broken_dedup_let_through_twice(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything(events: DataFrame, dedup: Dedup) -> DataFrame:
        return events.where("_error is null").select(dedup.id_column)

    app = dedup_app(broker, tmp_path)
    monkeypatch.setattr(shuffled, "distinct", everything)
    for ids in (["a", "b"], ["a"]):
        sent(app, ids)
        app.go()
    assert verdicts(app) == {"fresh": 3}, "the counters agree with what was written"
    found = app.audit()
    assert (found.lost, found.duplicated, found.counters_wrong) == (0, 0, [])
    assert not found.exact
    assert "ids written more than once: 1, 1 of them within the horizon" in found.remarks()


@pytest.mark.fault("W16")
def test_a_batch_planned_by_a_clock_that_went_back_stops_the_job_and_its_remedy_lets_it_go_on(
    broker: Broker, tmp_path: Path
) -> None:
    app = dedup_app(broker, tmp_path)
    sent(app, ["a", "b"])
    app.go()
    plans = app.checkpoint / "offsets"
    last = max(int(one.name) for one in plans.iterdir() if one.name.isdecimal())
    version, told, ends = (plans / str(last)).read_text(encoding="utf-8").splitlines()
    metadata = json.loads(told)
    metadata |= {
        "batchTimestampMs": metadata["batchWatermarkMs"] or 1,
        "batchWatermarkMs": metadata["batchTimestampMs"],
    }
    forged = plans / str(last + 1)
    forged.write_text("\n".join((version, json.dumps(metadata), ends)), encoding="utf-8")
    sent(app, ["b", "c"], partition=1)
    for _ in range(2):  # a right clock alone does not help: Spark has noted the time of the batch
        with pytest.raises(SafeStop) as stop:
            app.go()
        assert f"set the clock right, delete {forged} and its .crc, and start again" in str(stop.value)
    assert times_written(app) == {"a": 1, "b": 1}
    forged.unlink()
    app.go()
    assert times_written(app) == {"a": 1, "b": 1, "c": 1}
    app.assert_exact()


@pytest.mark.long
@pytest.mark.fault("W11")
def test_the_state_of_a_long_run_stays_within_the_horizon(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_dedup, "batch_time", by_kafka_time)
    app = dedup_app(broker, tmp_path, horizon=60)
    held = []
    for turn in range(8):
        sent(app, [f"{turn}-{number}" for number in range(300)], kafka_ms=KAFKA_MS + 50_000 * turn)
        app.go()
        held.append(read_state(app.settings).state_rows)
    # Three turns lie within twice the horizon, and the batch in hand: the ninth holds no more than the fourth.
    assert max(held) <= 4 * 300
    assert held[-1] <= max(held[:4])
    app.assert_exact()


@pytest.mark.long
@pytest.mark.fault("W12")
def test_the_ledger_of_a_long_run_with_many_producers_stays_within_its_bytes(broker: Broker, tmp_path: Path) -> None:
    app = windowed_app(broker.bootstrap, tmp_path, flow={"path": "lanes"}, dedup={"ledger_bytes": 20_000})
    provision(app.settings, lambda _: None)
    for turn in range(6):
        ids = range(2_000 * turn, 2_000 * (turn + 1))
        app.put([(seq % 2, seq, f"till-{seq % 400}", b'{"id":"a"}') for seq in ids])  # dead letters: they count
        app.run(transform=copied(app.settings))
        state = read_state(app.settings)
        assert len(state.producers) == 400
        # Nearly full from the first turn on: room for one more id is made by forgetting an old one.
        assert 19_000 < state.largest_lane_bytes <= 20_000
