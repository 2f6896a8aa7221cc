"""Three brokers that fall ill: who leads what, nodes that go and come back, and a job that is watched all the while."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.arena import PATIENCE_SECONDS, Arena, arena
from tests.support.kafka import DEADLINE_SECONDS, QUIET, wait_until

from pipeline.errors import PipelineError
from pipeline.flow.shutdown import open_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pipeline.local.broker import Broker

NODES = 3
# Each look at three nodes makes clients of its own; many a second would take the machine from the job.
LOOK_SECONDS = 0.5
TRANSACTION_STATE = "__transaction_state"
# Whoever is to lead a partition does so again soon after it is back, not within five minutes.
LEADERS_RETURN = {"leader.imbalance.check.interval.seconds": "5", "leader.imbalance.per.broker.percentage": "0"}


class Watched(Arena):
    """An arena on a cluster that may not answer for a while."""

    def watch(self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS, what: str = "") -> None:
        """Wait as ever; a cluster that does not answer a question of the test has not met the condition yet."""
        until = time.monotonic() + seconds
        while True:
            with suppress(PipelineError, KafkaException):
                super().watch(_seldom(condition), until - time.monotonic(), what)
                return
            assert time.monotonic() < until, f"not within {seconds} s, for want of an answer: {what}"

    def elapse(self, seconds: float, what: str) -> None:
        """Let time pass; the job is started again whenever it ends."""
        until = time.monotonic() + seconds
        self.watch(lambda: time.monotonic() > until, seconds + PATIENCE_SECONDS, what)

    def work(self, seed: int, count: int = 1_000) -> None:
        """Send payments; what a cluster that is not well does not take is sent again, as an upstream would."""

        def sent() -> bool:
            Arena.work(self, seed, count)
            return True

        self.watch(sent, what="the cluster takes work")

    def begin(self, seed: int, count: int = 500) -> None:
        """Let the job run, and give it work."""
        self.watch(lambda: self.running.poll() is None and self.caught_up(), what="the job runs")
        self.work(seed, count)

    def await_strike(self) -> None:
        """Wait until the armed fault point was passed."""
        self.watch(lambda: self.faults.struck() or self.caught_up(), what="the fault strikes")
        assert self.faults.struck() is not None, "the job caught up without passing the place"

    def hold_between_batches(self) -> None:
        """Stop the job's driver before a batch, when every marker of the last one is written."""
        self.faults.arm("before batch", "wait")
        self.await_strike()
        wait_until(lambda: not open_partitions(self.app.settings), what="the markers are written")


def watched(broker: Broker, folder: Path, *, through: str | None = None) -> Watched:
    """Make an app with three replicas of everything, and an arena for it."""
    output, source = {"replication": NODES}, {"max_offsets_per_trigger": 200}
    made = arena(broker, folder, through=through, partitions=2, output=output, source=source)
    return Watched(made.app, made.bootstrap, made.faults)


def _seldom(condition: Callable[[], object]) -> Callable[[], object]:
    """Ask less often; in between nothing has changed."""
    next_look = 0.0

    def asked() -> object:
        nonlocal next_look
        if time.monotonic() < next_look:
            return False
        found = condition()
        next_look = time.monotonic() + LOOK_SECONDS
        return found

    return asked


def leader(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the node that leads a partition."""
    found: int = _partition(bootstrap, topic, partition).leader
    return found


def preferred(bootstrap: str, topic: str, partition: int) -> int:
    """Return the node that leads a partition again whenever it can."""
    first: int = _partition(bootstrap, topic, partition).replicas[0]
    return first


def _partition(bootstrap: str, topic: str, partition: int) -> Any:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    return admin.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions[partition]


def coordinator_partition(bootstrap: str, transactional_id: str) -> int:
    """Return the partition of the transaction log that a transactional id belongs to."""
    number = 0
    for character in transactional_id:  # Java's String.hashCode
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    topic = admin.list_topics(TRANSACTION_STATE, timeout=DEADLINE_SECONDS).topics[TRANSACTION_STATE]
    return (number & 0x7FFFFFFF) % len(topic.partitions)


def coordinator(bootstrap: str, transactional_id: str) -> int:
    """Return the node that coordinates a transactional id."""
    return leader(bootstrap, TRANSACTION_STATE, coordinator_partition(bootstrap, transactional_id))


def restart_all(cluster: Broker, nodes: Iterable[int]) -> None:
    """Start nodes again side by side: one alone may have no majority of controllers to answer with."""
    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(cluster.restart, nodes))


def heal(cluster: Broker) -> None:
    """Start what does not run."""
    restart_all(cluster, set(range(1, NODES + 1)) - cluster.pids.keys())


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic, up to so many."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_SECONDS)
