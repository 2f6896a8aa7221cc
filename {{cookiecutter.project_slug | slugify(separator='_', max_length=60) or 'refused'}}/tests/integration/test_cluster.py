"""Three brokers: leaders and coordinators are paused or killed, an old leader serves an old tail; lanes stay exact."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from tests.support.cluster import NODES, coordinator, heal, leader
from tests.support.kafka import wait_until
from tests.support.lanes import App, in_batches, provisioned, run_task

from pipeline.kafka import consumer_config
from pipeline.lanes.recall import Recalled, recall
from pipeline.lanes.record import decode
from pipeline.lanes.transaction import Transaction
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.rows import Row

# A node that falls silent is replaced after 2 s.
HASTY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
# How often a leader is deposed until it serves something old: it may hear of its end at once.
TRIES = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(nodes=NODES, properties=HASTY) as running:
        yield running


@pytest.fixture
def app(cluster: Broker) -> Iterator[App]:
    """An app on a cluster of which all nodes run; those that a test killed are started again."""
    yield provisioned(cluster.bootstrap, output={"replication": NODES}, transaction={"chunk_rows": 20})
    heal(cluster)


def without(cluster: Broker, node: int) -> str:
    """Return the addresses of the other nodes."""
    return ",".join(address for number, address in enumerate(cluster.bootstrap.split(","), 1) if number != node)


def on(app: App, bootstrap: str) -> App:
    """Return the same app, reached through other addresses."""
    settings = app.settings
    source = settings.source.model_copy(update={"bootstrap": bootstrap})
    return replace(app, settings=settings.model_copy(update={"source": source}))


class Warm:
    """A consumer that is connected to a leader and stays so, whoever uses it in turn."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(consumer_config(bootstrap))

    def recall(self, app: App, monkeypatch: pytest.MonkeyPatch) -> Recalled:
        """Recall with this consumer instead of a fresh one."""
        with monkeypatch.context() as patched:
            patched.setattr("pipeline.lanes.recall.Consumer", lambda _: self)
            return app.glance()

    def close(self) -> None:
        """Stay connected."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def read_from_deposed_leader(cluster: Broker, app: App, until: int, monkeypatch: pytest.MonkeyPatch) -> Recalled:
    """Depose the lane's leader by a pause, move the lane on to `until` under a new one, and recall from the old one."""
    old = leader(cluster.bootstrap, app.settings.lane_topic)
    others = without(cluster, old)
    warm = Warm(cluster.bootstrap)
    before = warm.recall(app, monkeypatch)
    cluster.pause(old)
    wait_until(lambda: leader(others, app.settings.lane_topic) != old, what="another node leads the lane")
    away = on(app, others)
    away.write(decode(before.value).next_offset, until)
    assert away.lane().next_offset == until
    # The request is on its way when the old leader wakes up: it answers before it hears that it was replaced.
    waking = threading.Timer(0.2, cluster.resume, [old])
    waking.start()
    try:
        return warm.recall(app, monkeypatch)
    finally:
        waking.join()


@pytest.mark.fault("F3")
@pytest.mark.long
def test_what_a_deposed_leader_serves_is_noticed_by_compare_and_set(
    cluster: Broker, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.write(0, 10)
    for reached in range(10, 10 + 10 * TRIES, 10):
        before = app.recalled()
        served = read_from_deposed_leader(cluster, app, reached + 10, monkeypatch)
        if served == before:
            break
    else:
        pytest.skip(f"in {TRIES} tries the deposed leader heard of its end before it answered")
    reached = decode(app.recalled().value).next_offset
    assert decode(served.value).next_offset == reached - 10
    answers = [served]
    monkeypatch.setattr("pipeline.lanes.writer.recall", lambda *args: answers.pop() if answers else recall(*args))
    report = app.write(0, reached + 10)
    assert app.written() == list(range(reached + 10))
    assert report.failures["moved"] == 1
    assert app.lane().counters.verdicts == {"fresh": reached + 10}


def test_a_lane_whose_leader_is_killed_between_chunks_is_written_on_exactly(cluster: Broker, app: App) -> None:
    def batches() -> Iterator[list[Row]]:
        for number, batch in enumerate(in_batches(app.rows(0, 400), 20)):
            if number == 8:
                cluster.kill(leader(cluster.bootstrap, app.settings.lane_topic))
            yield batch

    run_task(app.task(0, 400), batches())
    assert len(cluster.pids) == NODES - 1
    assert app.written() == list(range(400))
    assert [lane.next_offset for lane in app.lane_records()] == list(range(0, 401, 20))


def test_a_lane_whose_coordinator_is_killed_before_the_commit_is_written_on_exactly(
    cluster: Broker, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Transaction.flush_and_compare
    killed: list[int] = []

    def flush_and_kill(self: Transaction, end: int, before: str = "") -> int:
        landed = real(self, end, before)
        if not killed:
            killed.append(coordinator(cluster.bootstrap, app.settings.transactional_id(0)))
            cluster.kill(killed[0])
        return landed

    monkeypatch.setattr(Transaction, "flush_and_compare", flush_and_kill)
    app.write(0, 60)
    assert len(cluster.pids) == NODES - 1
    assert app.written() == list(range(60))
    assert app.lane().counters.verdicts == {"fresh": 60}
