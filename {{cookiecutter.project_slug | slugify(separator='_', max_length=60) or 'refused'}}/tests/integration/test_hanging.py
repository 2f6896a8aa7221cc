"""A confirmed transaction whose markers Kafka never wrote: nothing is aborted with it, nothing is written twice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.support.hanging import Hanging, hanging
from tests.support.lanes import leave_open, provisioned

from pipeline.errors import SafeStop
from pipeline.flow.shutdown import SETTLE_SECONDS, close_lanes
from pipeline.lanes.recall import recall
from pipeline.lanes.record import lane_key
from pipeline.lanes.takeover import fence, take_over
from pipeline.observe.doctor import examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.local.broker import Broker

# Longer than the time-out of the transactions here, which is a second.
PATIENCE_SECONDS = 4.0


@pytest.fixture(scope="module")
def hung() -> Iterator[Hanging]:
    """A lane that hangs; tests here leave it so."""
    with hanging() as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lanes.recall.HANGING_MARGIN_SECONDS", PATIENCE_SECONDS - 1)


def stop_line(hung: Hanging) -> str:
    """What the job must say of the lane."""
    return (
        rf"lane topic {hung.app.settings.lane_topic} \[0\]: a transaction hangs at offset 4, the log ends at 5: .*KAFKA"
    )


def test_a_job_does_not_take_over_a_lane_that_hangs(hung: Hanging) -> None:
    app = hung.app
    with pytest.raises(SafeStop, match=stop_line(hung)):
        take_over(app.settings, app.source)
    # An abort would have ended it here, as an aborted one, and its rows would have been written twice.
    assert hung.ends() == [(4, 5), (4, 7)]


def test_a_task_that_reads_a_lane_that_hangs_writes_nothing(hung: Hanging) -> None:
    app = hung.app
    with pytest.raises(SafeStop, match=stop_line(hung)):
        app.write(3, 9)
    assert hung.ends() == [(4, 5), (4, 7)]


def test_a_clean_stop_does_not_wait_for_a_lane_that_hangs(hung: Hanging) -> None:
    began = time.monotonic()
    blocked = close_lanes(hung.app.settings, 1, workers_may_run=False)
    assert set(blocked) == {f"{hung.app.settings.lane_topic} [0]", f"{hung.app.out} [0]"}
    assert time.monotonic() - began < SETTLE_SECONDS / 2


def test_the_doctor_names_the_partitions_and_where_to_read_on(hung: Hanging) -> None:
    found = next(finding for finding in examine(hung.app.settings) if finding.what == "open transactions")
    assert f"{hung.app.settings.lane_topic} [0] (offset 4 of 5)" in found.detail
    assert f"{hung.app.out} [0] (offset 4 of 7)" in found.detail
    assert "Hanging transactions" in found.remedy


def test_a_lane_known_to_be_committed_is_settled_by_the_next_commit() -> None:
    with hanging() as hung:
        app = hung.app
        report = app.write(6, 9, recalled=hung.confirmed)
        assert report.failures == {}
        assert app.written() == list(range(9))
        assert [lane.next_offset for lane in app.lane_records()] == [0, 3, 6, 9]
        assert app.recalled().end == report.end
        take_over(app.settings, app.source)


def test_a_rival_that_writes_is_waited_for_and_not_taken_for_one_that_hangs(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, transaction={"timeout_ms": 1_000, "chunk_seconds": 0.5})
    app.write(0, 3)
    before = app.recalled()
    fence(app.settings, 0)
    leave_open(app)
    key = lane_key(app.settings.app.id, app.source.name, 0)
    found = recall(broker.bootstrap, app.settings.lane_topic, 0, key, PATIENCE_SECONDS)
    assert (found.value, found.end) == (before.value, before.end + 2)


def test_a_lane_topic_that_lost_what_was_committed_stops_the_job(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    report = app.write(0, 3)
    later = app.recalled()
    transaction = fence(app.settings, 0)
    transaction.begin()
    key = lane_key(app.settings.app.id, app.source.name, 0)
    transaction.put_lane_record(app.settings.lane_topic, 0, key, report.record)
    with pytest.raises(SafeStop, match=f"expected {later.end + 1}: the lane topic lost what was committed"):
        transaction.flush_and_compare(later.end + 1)
    transaction.abandon()
    assert app.lane().next_offset == 3
