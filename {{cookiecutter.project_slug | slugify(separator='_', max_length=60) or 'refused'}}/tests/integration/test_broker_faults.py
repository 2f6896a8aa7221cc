"""The broker itself is killed, paused and restarted, be it a container or the embedded one. Lanes stay exact."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.brokers import own_broker
from tests.support.kafka import DEADLINE_SECONDS, QUIET
from tests.support.lanes import in_batches, provisioned, run_task

from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.rows import Row

    from pipeline.local.broker import Broker

# `make test` leaves them out: the embedded broker is hurt in many other tests.
pytestmark = [pytest.mark.container, pytest.mark.long]

# A killed node may come back when its old session has ended: after 2 s.
HASTY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def hurt() -> Iterator[Broker]:
    """Return a broker to be hurt; a test leaves it running."""
    with own_broker(HASTY) as running:
        yield running


def answers(broker: Broker) -> bool:
    """Ask a fresh question."""
    try:
        AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET}).list_topics(timeout=1)
    except KafkaException:
        return False
    return True


def kill_and_restart(broker: Broker) -> None:
    """SIGKILL, then a start on the same data."""
    broker.kill()
    assert not answers(broker)
    broker.restart()


@pytest.mark.parametrize("hurting", [kill_and_restart, lambda broker: broker.restart()], ids=["killed", "restarted"])
def test_a_lane_is_written_on_exactly_when_its_only_broker_comes_back(
    hurt: Broker, hurting: Callable[[Broker], None]
) -> None:
    app = provisioned(hurt.bootstrap, transaction={"chunk_rows": 20})

    def batches() -> Iterator[list[Row]]:
        for number, batch in enumerate(in_batches(app.rows(0, 100), 20)):
            if number == 3:
                # Between two transactions, all markers written: what a kill in the midst of them leaves behind is
                # Kafka's to answer for (KAFKA-20734), and has tests of its own.
                app.recalled()
                app.written()
                hurting(hurt)
            yield batch

    run_task(app.task(0, 100), batches())
    assert app.written() == list(range(100))
    assert app.lane().next_offset == 100
    assert app.lane().counters.verdicts == {"fresh": 100}


def test_a_writer_waits_for_a_paused_broker_and_writes_every_row_once(
    hurt: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(hurt.bootstrap)
    app.write(0, 5)
    begun = threading.Event()
    real = Transaction.fence

    def fence(self: Transaction, *args: Any, **given: Any) -> None:
        begun.set()
        real(self, *args, **given)

    monkeypatch.setattr(Transaction, "fence", fence)
    with ThreadPoolExecutor(1) as pool:
        hurt.pause()
        try:
            writing = pool.submit(app.write, 5, 10)
            assert begun.wait(DEADLINE_SECONDS)
            assert not answers(hurt)
            assert not writing.done()
        finally:
            hurt.resume()
        writing.result(DEADLINE_SECONDS)
    assert app.written() == list(range(10))
    assert app.lane().counters.verdicts == {"fresh": 10}
