"""Recall: the last committed lane record is found whatever stands behind it, and silence is never taken for absence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, fresh
from tests.support.lanes import App, leave_open, provisioned, settings_for

from pipeline.errors import SafeStop
from pipeline.kafka import TransactionFailed
from pipeline.lanes.provision import provision
from pipeline.lanes.recall import find, recall
from pipeline.lanes.record import lane_key
from pipeline.lanes.takeover import fence
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def silenced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that its test may pause; requests to it fail after 2 s."""
    monkeypatch.setattr("pipeline.lanes.recall.REQUEST_SECONDS", 2.0)
    with Broker() as running:
        yield running
        running.resume()


def put(app: App, key: bytes, value: bytes | None) -> None:
    """Write to the lane partition past the product."""
    producer = Producer({"bootstrap.servers": app.settings.output_bootstrap, **QUIET})
    producer.produce(app.settings.lane_topic, value, key, 0)
    assert producer.flush(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("kills", [1, 5])
def test_the_last_committed_record_is_found_behind_what_kills_left(broker: Broker, kills: int) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 7)
    before = app.recalled()
    for _ in range(kills):
        leave_open(app)  # and is never heard of again
    fence(app.settings, 0)
    recalled = app.glance()  # a fence returns when the markers are written
    assert recalled.value == before.value
    assert recalled.end == before.end + 2 * kills
    app.write(7, 10)
    assert app.written() == list(range(10))


def test_forty_aborted_records_do_not_hide_the_committed_one(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 7)
    before = app.recalled()
    for _ in range(40):
        leave_open(app).abandon()
    recalled = app.recalled()
    assert (recalled.value, recalled.end) == (before.value, before.end + 80)


def test_a_lane_without_any_record_stops_the_job_and_names_the_remedy(broker: Broker) -> None:
    settings = settings_for(broker.bootstrap, fresh("source"))
    create_topic(broker.bootstrap, settings.lane_topic)
    key = lane_key(settings.app.id, settings.source.topic, 0)
    with pytest.raises(SafeStop, match=r"no record of .*: run `pipeline provision` only .* would repeat its output"):
        recall(broker.bootstrap, settings.lane_topic, 0, key)


def test_a_lane_that_holds_nothing_but_an_aborted_record_has_none(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    settings = settings_for(broker.bootstrap, app.source.name)
    create_topic(broker.bootstrap, settings.lane_topic, config={"cleanup.policy": "compact"})
    key = lane_key(settings.app.id, app.source.name, 0)
    killed = fence(settings, 0)
    killed.begin()
    killed.put_lane_record(settings.lane_topic, 0, key, b"never committed")
    killed.flush_and_compare(0)
    killed.abandon()
    found = find(broker.bootstrap, settings.lane_topic, 0, key)
    assert (found.value, found.end) == (None, 2)
    provision(settings, lambda _: None)
    assert App(settings, app.source).lane().next_offset == 0


def test_records_under_another_key_are_passed_over(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    before = app.recalled()
    put(app, b"another lane", b"not ours")
    assert app.recalled().value == before.value


def test_a_deleted_lane_record_is_not_replaced_by_an_older_one(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    put(app, lane_key(app.settings.app.id, app.source.name, 0), None)
    with pytest.raises(SafeStop, match="holds no record"):
        app.recalled()


def test_bytes_that_are_no_lane_record_stop_the_job_and_name_the_lane(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    put(app, lane_key(app.settings.app.id, app.source.name, 0), b"\x02garbage")
    with pytest.raises(SafeStop, match=f"lane record {app.settings.app.id}.{app.source.name}.0: damaged"):
        app.write(0, 5)
    assert app.written() == []


def test_a_broker_that_falls_silent_is_an_error_and_never_an_empty_lane(
    silenced: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(silenced.bootstrap)
    app.write(0, 5)

    class Silencing(Consumer):  # type: ignore[misc]
        def get_watermark_offsets(self, *args: Any, **kwargs: Any) -> Any:
            found = super().get_watermark_offsets(*args, **kwargs)
            silenced.pause()
            return found

    monkeypatch.setattr("pipeline.lanes.recall.Consumer", Silencing)
    with pytest.raises(TransactionFailed, match="no end of partition within"):
        app.glance()
    monkeypatch.undo()
    monkeypatch.setattr("pipeline.lanes.recall.REQUEST_SECONDS", 2.0)
    with pytest.raises(TransactionFailed, match="Failed to get watermark offsets"):  # it is silent from the start now
        app.glance()
    silenced.resume()
    app.write(5, 10)
    assert app.written() == list(range(10))
