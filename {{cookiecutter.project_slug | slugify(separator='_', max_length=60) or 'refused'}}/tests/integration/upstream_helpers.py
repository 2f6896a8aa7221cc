"""What the tests of StampedProducer share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from tests.support.kafka import QUIET, fresh, read_committed

from pipeline.kafka import Fatal
from pipeline.upstream import StampedProducer
from pipeline.upstream_attempt import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from pipeline.local.broker import Broker

# How long a thread that must wait is watched, and how long one that must end is waited for.
WATCH_SECONDS = 1.5
END_SECONDS = 30.0


def stamped(broker: Broker, topic: str, producer_id: str = "till-1", **options: Any) -> StampedProducer:
    return StampedProducer({"bootstrap.servers": broker.bootstrap}, topic, producer_id, **options)


def send(producer: StampedProducer, *values: str) -> None:
    with producer.transaction() as transaction:
        for value in values:
            transaction.send(value.encode(), value.encode())


def committed(broker: Broker, topic: str) -> list[tuple[str, int, int, int]]:
    """All committed rows as (value, epoch, txn, seq), by number."""
    rows = []
    for record in read_committed(broker.bootstrap, topic):
        found = dict(record.headers)
        epoch, txn, seq = (int(found[name] or b"") for name in ("producer-epoch", "txn-id", "seq"))
        rows.append(((record.value or b"").decode(), epoch, txn, seq))
    return sorted(rows, key=lambda row: (row[2], row[3], row[1]))


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, *, after_commit: bool, times: int = 1) -> None:
    """Let the next commits end as if they had timed out, with or without reaching the broker."""
    commit, calls = Attempt.commit, iter(range(times))

    def uncertain(attempt: Attempt) -> None:
        if next(calls, None) is None:
            return commit(attempt)
        if after_commit:
            commit(attempt)
        msg = "commit: _TIMED_OUT"
        raise Fatal(msg)

    monkeypatch.setattr(Attempt, "commit", uncertain)


def plain(broker: Broker, topic: str, values: Iterable[bytes], name: str | None = None) -> Producer:
    """Open a transaction of some other producer and deliver the values to partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name or fresh("other"), **QUIET})
    producer.init_transactions(END_SECONDS)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(END_SECONDS)
    return producer
