"""Three brokers fall ill, one at a time or together, and the job's output stays exact.

A8   the leader of the source killed, with another node: too few are left to write or to elect
D5   a lane's coordinator killed between lane record and commit
D6   a lane's coordinator moved
D7   the job dies in open transactions, and nobody starts it again
D8   output leaders move, and an output topic gains partitions
F1   nodes killed one after the other
F2   all nodes killed at once
F3   a lane's leader frozen for 40 s
F4   the job cannot reach one node, which is a coordinator, while the nodes reach one another
F5   a node's disk is full

Between a commit that was confirmed and its markers, Kafka 4.3.1 does not survive a kill of all its nodes (KAFKA-20734;
what the job does then is in tests/integration/test_hanging.py). So A8 and F2 strike between two batches.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import PATIENCE_SECONDS, TIMEOUT_MS, shared
from tests.support.cluster import (
    LEADERS_RETURN,
    NODES,
    TRANSACTION_STATE,
    Watched,
    coordinator,
    coordinator_partition,
    grow,
    heal,
    leader,
    preferred,
    restart_all,
    watched,
)
from tests.support.disks import fill, small_disk
from tests.support.gates import GatedBroker
from tests.support.kafka import wait_until

from pipeline.flow.shutdown import open_partitions
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.arena import Evidence

ROUND_SECONDS = 12.0
ROUNDS = 5
AWAY_SECONDS = 30.0
FROZEN_SECONDS = 40.0
SHUT_SECONDS = 45.0
# Brokers here look for transactions that timed out every second; the markers take a moment on a busy machine.
SLACK_SECONDS = 6.0
DISK = "96m"

# A start of everything, a fault of up to a minute, and all that a busy machine adds.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a cluster whose second node has a disk of its own, and a small one."""
    with small_disk(tmp_path / "kafka" / "node-2" / "data", DISK) as place:
        yield place


@pytest.mark.fault("F5")
@pytest.mark.long
def test_the_disk_of_a_node_is_full(disk: Path, tmp_path: Path, evidence: Evidence) -> None:
    # The first of all cases here: the cluster of the others does not run yet, and leaves the machine to this one.
    folder = disk.parents[1]
    with Broker(folder, nodes=NODES) as broker, watched(broker, tmp_path) as used:
        used.evidence = evidence
        used.begin(evidence.seed)
        filler = disk / "filler"
        fill(filler)
        used.watch(lambda: 2 not in broker.pids, what="the node gives up")
        used.elapse(ROUND_SECONDS, "the node is away")
        filler.unlink()
        broker.restart(2)
        used.assert_recovered()


@pytest.fixture(scope="module")
def running() -> Iterator[GatedBroker]:
    with GatedBroker(properties=LEADERS_RETURN) as started:
        yield started


@pytest.fixture
def cluster(running: GatedBroker) -> Iterator[GatedBroker]:
    """Return three nodes; all of them run, whatever the last case did to them."""
    heal(running)
    yield running
    for gate in running.gates.values():
        gate.open()


@pytest.fixture(scope="module")
def jobs(running: GatedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Watched]]:
    """Return what gives the job: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("cluster")
    with shared(lambda: watched(running, folder, through=running.gated)) as give:
        yield give


@pytest.fixture
def used(cluster: GatedBroker, jobs: Callable[[], Watched], evidence: Evidence) -> Watched:
    """Return a job on the cluster, through the gates, with work to do."""
    assert len(cluster.pids) == NODES
    job = jobs()
    job.evidence, job.broken = evidence, True
    job.begin(evidence.seed)
    return job


def lane_id(used: Watched) -> str:
    """Return the transactional id of the first lane."""
    return used.app.settings.transactional_id(0)


@pytest.mark.fault("F1")
@pytest.mark.long
def test_nodes_are_killed_one_after_the_other(cluster: Broker, used: Watched) -> None:
    for number in range(ROUNDS):
        node = 1 + (used.evidence.seed + number) % NODES
        cluster.kill(node)
        used.elapse(ROUND_SECONDS / 2, f"node {node} is away")
        cluster.restart(node)
        used.elapse(ROUND_SECONDS / 2, f"node {node} is back")
        used.work(used.evidence.seed + 1 + number, count=200)
    used.assert_recovered()


@pytest.mark.fault("F2")
@pytest.mark.long
def test_all_nodes_are_killed_at_once(cluster: Broker, used: Watched) -> None:
    used.hold_between_batches()
    for node in range(1, NODES + 1):
        cluster.kill(node)
    used.faults.go()
    used.elapse(ROUND_SECONDS / 2, "no node runs")
    heal(cluster)
    used.assert_recovered()


@pytest.mark.fault("F3")
@pytest.mark.long
def test_the_leader_of_a_lane_is_frozen(cluster: Broker, used: Watched) -> None:
    node = leader(cluster.bootstrap, used.app.settings.lane_topic)
    cluster.pause(node)
    used.elapse(FROZEN_SECONDS, f"node {node} is frozen")
    cluster.resume(node)
    used.assert_recovered()


@pytest.mark.fault("A8")
@pytest.mark.long
def test_the_leader_of_the_source_is_killed_and_too_few_are_left(cluster: Broker, used: Watched) -> None:
    used.hold_between_batches()
    first = leader(cluster.bootstrap, used.app.topic)
    nodes = [first, 1 + first % NODES]
    for node in nodes:
        cluster.kill(node)
    used.faults.go()
    used.elapse(AWAY_SECONDS, f"nodes {nodes} are away")
    restart_all(cluster, nodes)
    used.assert_recovered()


@pytest.mark.fault("D5")
@pytest.mark.long
def test_a_coordinator_is_killed_between_lane_record_and_commit(cluster: Broker, used: Watched) -> None:
    used.faults.arm("after compare", "wait", nth=1 + used.evidence.seed % 3)
    used.await_strike()
    node = coordinator(cluster.bootstrap, lane_id(used))
    cluster.kill(node)
    used.faults.go()
    used.elapse(ROUND_SECONDS / 2, f"node {node} is away")
    cluster.restart(node)
    used.assert_recovered()


@pytest.mark.fault("D6")
@pytest.mark.long
def test_a_coordinator_moves_and_moves_back(cluster: Broker, used: Watched) -> None:
    partition = coordinator_partition(cluster.bootstrap, lane_id(used))
    first = preferred(cluster.bootstrap, TRANSACTION_STATE, partition)

    def leads() -> bool:
        return leader(cluster.bootstrap, TRANSACTION_STATE, partition) == first

    used.watch(leads, what=f"node {first} leads, as it will not after a case that killed it a moment ago")
    used.faults.arm("after compare", "wait")
    used.await_strike()
    cluster.restart(first)  # a node that ends in order hands over what it leads
    used.faults.go()
    used.work(used.evidence.seed + 1)
    used.faults.arm("after compare", "wait")
    used.await_strike()
    used.watch(leads, what=f"node {first} leads again")
    used.faults.go()
    used.assert_recovered()


@pytest.mark.fault("D7")
@pytest.mark.long
def test_readers_wait_for_a_job_that_died_no_longer_than_its_time_out(used: Watched) -> None:
    used.faults.arm("after compare", "kill job", nth=1 + used.evidence.seed % 3)
    wait_until(lambda: used.faults.struck() and used.running.poll() is not None, PATIENCE_SECONDS, "the job died")
    died = time.monotonic()
    assert open_partitions(used.app.settings), "it was to leave a transaction open"
    wait_until(lambda: not open_partitions(used.app.settings), TIMEOUT_MS / 1000 + SLACK_SECONDS, "readers go on")
    assert time.monotonic() - died > 1, "the broker was to end the transaction by its time-out"
    used.assert_recovered()


@pytest.mark.fault("D8")
@pytest.mark.long
def test_output_leaders_move_and_an_output_topic_grows(cluster: Broker, used: Watched) -> None:
    receipts = used.app.settings.output.topics[0]
    for node in range(1, NODES + 1):
        cluster.restart(node)  # in order: it hands over what it leads, and gets it back some seconds later
        used.work(used.evidence.seed + node, count=400)
        if node == 1:
            grow(cluster.bootstrap, receipts, 5)
        used.elapse(ROUND_SECONDS / 4, "leaders have moved")
    used.assert_recovered()
    assert {record.partition for record in used.app.written(receipts)} > {0, 1, 2}, "none went to a new partition"


@pytest.mark.fault("F4")
@pytest.mark.long
def test_the_job_cannot_reach_a_coordinator(cluster: GatedBroker, used: Watched) -> None:
    node = coordinator(cluster.bootstrap, lane_id(used))
    used.faults.arm("after compare", "wait")
    used.await_strike()
    cluster.gates[node].shut()
    used.faults.go()
    used.elapse(SHUT_SECONDS, f"node {node} is out of reach")
    cluster.gates[node].open()
    used.assert_recovered()
