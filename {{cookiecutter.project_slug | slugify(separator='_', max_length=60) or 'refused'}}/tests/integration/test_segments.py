"""The second reader of the fault kit agrees with Kafka's own clients, and sees what they do not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Producer
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, fresh, read_committed, wait_until
from tests.support.segments import visible

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.local.broker import Broker


def begun(broker: Broker, topic: str, rows: int) -> Producer:
    """Return a producer whose transaction is open, with so many rows in the log."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("txn"), **QUIET})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    for row in range(rows):
        producer.produce(topic, b"%d" % row, partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return producer


def test_what_the_files_hold_is_what_readers_see(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    folder = broker.data() / f"{topic}-0"
    plain = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    plain.produce(topic, b"plain", partition=0)
    assert plain.flush(DEADLINE_SECONDS) == 0
    begun(broker, topic, 3).commit_transaction(DEADLINE_SECONDS)
    begun(broker, topic, 4).abort_transaction(DEADLINE_SECONDS)
    early, late = begun(broker, topic, 2), begun(broker, topic, 1)
    late.commit_transaction(DEADLINE_SECONDS)
    wait_until(lambda: len(visible(folder).open) == 1, what="all markers but one are written")
    # Behind the open transaction a reader sees nothing, though the files tell that it is there.
    assert seen(broker, topic) == visible_before(folder) == {0, 1, 2, 3}
    early.commit_transaction(DEADLINE_SECONDS)
    wait_until(lambda: not visible(folder).open, what="the last marker is written")
    assert seen(broker, topic) == visible(folder).offsets
    assert len(visible(folder).offsets) == 7


def seen(broker: Broker, topic: str) -> set[int]:
    """Return the offsets that a reader gets."""
    return {record.offset for record in read_committed(broker.bootstrap, topic, behind_open=True)}


def visible_before(folder: Path) -> set[int]:
    """Return what the files show up to the aborted transaction."""
    return {offset for offset in visible(folder).offsets if offset < 5}
