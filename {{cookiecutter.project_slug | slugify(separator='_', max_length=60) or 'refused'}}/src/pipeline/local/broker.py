"""A real Kafka in KRaft mode, on this machine, for the demo and the tests: one node, or three.

Guarantee: `start` returns when every node has answered a metadata request that names all nodes; after `stop`, Ctrl-C
or a crash of this process no broker process is left. In a given folder the data is kept and found again.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from confluent_kafka import KafkaException, Producer

from pipeline.errors import PipelineError
from pipeline.local.node import FORMATTED, GRACE_SECONDS, HOST, Node, Ports, cluster_id, free_ports, jvm

if TYPE_CHECKING:
    from collections.abc import Mapping

# A start takes about 4 s; on a machine that is busy with builds it was seen to take five times that.
START_SECONDS = 60.0
# Another process may take a port between the choice and its use.
ATTEMPTS = 3
WARM_UP = "embedded-broker-warm-up"
TAKEN = "Address already in use"
HEAP = {1: "384m", 3: "512m"}
DEFAULTS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENT",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Events carry their own time, which may lie years back: retention by time would delete them.
    "log.retention.ms": "-1",
    # The default of 128 MB would be a third of the heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    "group.initial.rebalance.delay.ms": "0",
    # Transactions that a killed writer left open end soon after their time-out.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A killed node may come back only when its old session has ended: 6 s, not 9. Less deposes nodes on a busy machine.
    "broker.session.timeout.ms": "6000",
}
# Kafka's default of 50 for each internal topic costs seconds at the first use.
INTERNAL_PARTITIONS = 4
INTERNAL = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class Broker:
    """An embedded Kafka with nodes numbered from 1; a context manager that starts and stops it."""

    def __init__(self, folder: Path | None = None, nodes: int = 1, properties: Mapping[str, str] | None = None) -> None:
        """Describe the broker; without a folder its data is temporary. `properties` go over the defaults."""
        if nodes not in HEAP:
            msg = f"an embedded broker has 1 or 3 nodes, not {nodes}"
            raise ValueError(msg)
        self._given = folder
        self._count = nodes
        self._properties = dict(properties or {})
        self._ports: list[Ports] = []
        self._folder: Path | None = None
        self._locked: TextIO | None = None
        self._nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return ",".join(node.address for node in self._nodes.values())

    @property
    def pids(self) -> dict[int, int]:
        """Process id of the JVM of each node that runs."""
        return {number: node.pid for number, node in self._nodes.items() if node.running}

    def log(self, node: int = 1) -> Path:
        """Return the log file of a node."""
        return self._nodes[node].log

    def data(self, node: int = 1) -> Path:
        """Return the folder of a node's partitions."""
        return self.log(node).parent / "data"

    def start(self) -> None:
        """Start every node and wait until all answer; a second start keeps ports and, in a given folder, data."""
        if self.pids:
            msg = f"the embedded broker at {self.bootstrap} runs already"
            raise PipelineError(msg)
        # Nodes that were all killed leave a lock and a folder behind.
        self.stop()
        fresh = not self._ports
        for left in reversed(range(ATTEMPTS)):
            self._lock()
            try:
                self._ports = self._ports or free_ports(self._count)
                self._start()
            except BaseException:
                taken = any(TAKEN in line for node in self._nodes.values() for line in node.logged())
                self.stop()
                if not (fresh and taken and left):
                    raise
                self._ports = []
            else:
                return

    def stop(self) -> None:
        """End every node; temporary data is deleted."""
        # Of temporary data nothing is to be kept: no need to wait for an orderly end.
        grace = 0.0 if self._given is None else GRACE_SECONDS
        if grace:
            for node in self._nodes.values():
                node.terminate()
        for node in self._nodes.values():
            node.end(grace=grace)
        if self._given is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._locked is not None:
            self._locked.close()
            self._locked = None

    def kill(self, node: int = 1) -> None:
        """Kill a node (SIGKILL); returns when it is gone."""
        self._nodes[node].end(grace=0)

    def pause(self, node: int = 1) -> None:
        """Freeze a node (SIGSTOP): connections stay open, nothing answers."""
        self._signal(node, signal.SIGSTOP)

    def resume(self, node: int = 1) -> None:
        """Let a paused node go on (SIGCONT)."""
        self._signal(node, signal.SIGCONT)

    def restart(self, node: int = 1) -> None:
        """Start a node again, on its old ports and data, and wait until it answers; ends it in order if it runs."""
        self._nodes[node].end()
        self._nodes[node].start()
        self._nodes[node].await_ready([node], time.monotonic() + START_SECONDS)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, whatever happened."""
        self.stop()

    def _lock(self) -> None:
        # Kafka locks its data too, but only after this class would have rewritten the settings of the other broker.
        if self._given is None:
            return
        self._given.mkdir(parents=True, exist_ok=True)
        self._locked = (self._given / ".lock").open("w")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._locked.close()
            self._locked = None
            msg = f"another embedded broker runs in {self._given}: stop it, or choose another folder"
            raise PipelineError(msg) from error

    def _signal(self, node: int, number: signal.Signals) -> None:
        if not self._nodes[node].send(number):
            msg = f"Kafka node {node} does not run, it cannot get {number.name}; log: {self.log(node)}"
            raise PipelineError(msg)

    def _start(self) -> None:
        command = jvm(HEAP[self._count])
        self._folder = self._given.absolute() if self._given else Path(tempfile.mkdtemp(prefix="kafka-"))
        self._nodes = {
            number: Node(number, self._folder / f"node-{number}", command, temporary=self._given is None)
            for number in range(1, self._count + 1)
        }
        deadline = time.monotonic() + START_SECONDS
        # Every loop starts all nodes before it waits for one: they start side by side.
        for node, ports in zip(self._nodes.values(), self._ports, strict=True):
            node.configure(ports, self._settings())
        self._check_folder()
        cluster = cluster_id()
        for node in self._nodes.values():
            node.format(cluster)
        for node in self._nodes.values():
            node.await_formatted(deadline)
        for node in self._nodes.values():
            node.start()
        for node in self._nodes.values():
            node.await_ready(self._nodes, deadline)
        self._warm_up(deadline)

    def _check_folder(self) -> None:
        # Nodes formatted apart belong to two clusters and would wait for each other until the deadline.
        formatted = len(list(self._folder.glob(f"node-*/{FORMATTED}"))) if self._folder else 0
        if formatted not in (0, self._count):
            msg = (
                f"{self._folder} holds the data of {formatted} Kafka node(s), {self._count} are to start in it: "
                f"delete it, or choose another folder"
            )
            raise PipelineError(msg)

    def _warm_up(self, deadline: float) -> None:
        # The first transactional id makes Kafka create and load its transaction log: a second, and warnings, that
        # would else meet the first user. Ids that differ in the last digit fall into consecutive partitions of it.
        for number in range(INTERNAL_PARTITIONS):
            name = f"{WARM_UP}-{number}"
            producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name, "log_level": 0})
            try:
                producer.init_transactions(max(0.0, deadline - time.monotonic()))
            except KafkaException as error:
                msg = f"the embedded broker at {self.bootstrap} takes no transactions: {error}; log: {self.log()}"
                raise PipelineError(msg) from error

    def _settings(self) -> dict[str, str]:
        replicas = str(self._count)
        in_sync = str(self._count // 2 + 1)
        voters = ",".join(f"{n}@{HOST}:{ports.controller}" for n, ports in enumerate(self._ports, start=1))
        internal = {f"{topic}.replication.factor": replicas for topic in INTERNAL}
        internal |= {f"{topic}.num.partitions": str(INTERNAL_PARTITIONS) for topic in INTERNAL}
        internal |= {f"{topic}.min.isr": in_sync for topic in INTERNAL[1:]}
        own = {"default.replication.factor": replicas, "min.insync.replicas": in_sync}
        return {**DEFAULTS, "controller.quorum.voters": voters, **own, **internal, **self._properties}
