"""A transaction that hangs for real: confirmed to its writer, but Kafka never writes its markers (KAFKA-20734).

The broker is killed right after it confirmed a commit. After its restart the coordinator may look for the partitions
before it knows of them, takes them for deleted, and owes their markers no more. It happens in about every other kill.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from confluent_kafka.admin import OffsetSpec
from tests.support.kafka import wait_until
from tests.support.lanes import App, provisioned

from pipeline.lanes.recall import Recalled
from pipeline.lanes.topics import Topics
from pipeline.lanes.transaction import Transaction
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTEMPTS = 12
# A killed node may come back after 2 s.
HASTY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
SKIPPED = "Couldn't find leader endpoint"


class Hanging(NamedTuple):
    """A lane whose rows 0 to 2 are visible, and whose rows 3 to 5 were confirmed and hang, as does their record."""

    broker: Broker
    app: App
    confirmed: Recalled

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the last stable offset and the high watermark of partition 0."""
        topics = Topics(self.broker.bootstrap)
        stable, high = (topics.offsets(topic, [0], OffsetSpec.latest(), committed=flag)[0] for flag in (True, False))
        return stable, high


@contextmanager
def hanging() -> Iterator[Hanging]:
    """Kill brokers until a transaction hangs."""
    for _ in range(ATTEMPTS):
        with Broker(properties=HASTY) as broker:
            app = provisioned(broker.bootstrap, transaction={"timeout_ms": 1_000, "chunk_seconds": 0.5})
            app.write(0, 3)
            app.recalled()
            confirmed = _commit_and_kill(broker, app)
            broker.restart()
            found = Hanging(broker, app, confirmed)
            wait_until(partial(_over, found), what="markers are written, or given up")
            stable, high = found.ends(app.settings.lane_topic)
            if stable < high:
                yield found
                return
    msg = f"no transaction hung after {ATTEMPTS} kills: is the defect mended in this Kafka?"
    raise AssertionError(msg)


def _commit_and_kill(broker: Broker, app: App) -> Recalled:
    real = Transaction.commit

    def commit(transaction: Transaction) -> None:
        real(transaction)
        broker.kill()

    with patch.object(Transaction, "commit", commit):
        report = app.write(3, 6)
    return Recalled(report.record, report.end)


def _over(found: Hanging) -> bool:
    """Tell whether the restarted coordinator is done with the markers that it owed."""
    if SKIPPED in found.broker.log().read_text(encoding="utf-8"):
        return True
    stable, high = found.ends(found.app.settings.lane_topic)
    return stable == high
