"""One Kafka node of the embedded broker: its settings, its folder, its process.

Guarantee: its process is reached only through its watchdog, so a signal never hits a stranger, and it is gone when
`end` returns.
"""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.errors import PipelineError
from pipeline.local import watchdog
from pipeline.local.jars import jars
from pipeline.local.java import java

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
# Below the range from which systems give ports to outgoing connections: a node finds its port free after a restart.
PORTS = range(20_000, 32_000)
PROPERTIES = "server.properties"
LOG = "server.log"
FORMATTED = "data/meta.properties"
# C1 only and the serial collector: half the start time on two cores, and a steady small footprint.
JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
# How long a node may take to close its logs before it is killed; data outlives a kill, but the next start takes longer.
GRACE_SECONDS = 10.0
ANSWER_SECONDS = 1.0
TAIL = 20


def jvm(heap: str) -> list[str]:
    """Return the command that runs a class of the broker's, without that class; fetches the jars on first use."""
    return [java(), f"-Xmx{heap}", *JVM, "-cp", ":".join(map(str, jars("broker")))]


class Ports(NamedTuple):
    """Where a node listens."""

    client: int
    controller: int


class Node:
    """One broker and controller, with its folder."""

    def __init__(self, number: int, folder: Path, jvm: Sequence[str], *, temporary: bool) -> None:
        """Describe the node; nothing is started. `jvm` is the command without the class to run."""
        self.number = number
        self.folder = folder
        self.log = folder / LOG
        self._jvm = jvm
        self._leftover = str(folder) if temporary else ""
        self._tool: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.pid = 0

    @property
    def running(self) -> bool:
        """Whether its process lives (paused counts as living)."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def configure(self, ports: Ports, properties: Mapping[str, str]) -> None:
        """Write its settings file. Data lies in a relative path: no folder name needs escaping."""
        self.address = f"{HOST}:{ports.client}"
        own = {
            "node.id": str(self.number),
            "listeners": f"CLIENT://{HOST}:{ports.client},CONTROLLER://{HOST}:{ports.controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{ports.client}",
            "log.dirs": "data",
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in {**own, **properties}.items()]
        (self.folder / PROPERTIES).write_text("".join(lines), encoding="ascii")

    def format(self, cluster: str) -> None:
        """Begin to format its storage, where that has not been done before."""
        if (self.folder / FORMATTED).exists():
            return
        tool = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", PROPERTIES)
        with self.log.open("ab") as log:
            self._tool = subprocess.Popen(
                [*self._jvm, *tool], cwd=self.folder, env=_environment(), stdout=log, stderr=log
            )

    def await_formatted(self, deadline: float) -> None:
        """Wait until its storage is formatted."""
        if self._tool is None:
            return
        try:
            failed = self._tool.wait(max(0.0, deadline - time.monotonic())) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            msg = f"formatting {self.folder} failed; the end of the log {self.log}:\n{self.tail()}"
            raise PipelineError(msg)

    def start(self) -> None:
        """Start its process; `await_ready` tells when it answers."""
        command = (sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), self._leftover)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the creator, which then stops the node in order.
            self._watchdog = subprocess.Popen(
                [*command, *self._jvm, "kafka.Kafka", PROPERTIES],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,
            )
        if self._watchdog.stdout is None:  # pragma: no cover
            raise AssertionError
        self.pid = int(self._watchdog.stdout.readline() or 0)

    def await_ready(self, everyone: Iterable[int], deadline: float) -> None:
        """Wait until this very node answers a metadata request that names all of `everyone`."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 100})
        missing = set(everyone)
        while self.running and time.monotonic() < deadline:
            try:
                brokers = admin.list_topics(timeout=ANSWER_SECONDS).brokers
            except KafkaException:
                continue
            if not missing - brokers.keys():
                return
        why = "did not answer in time" if self.running else "ended while starting"
        msg = f"Kafka node {self.number} at {self.address} {why}; the end of its log {self.log}:\n{self.tail()}"
        raise PipelineError(msg)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to its process and wait until it had its effect; False if there is no process."""
        if self._watchdog is None or self._watchdog.stdin is None or self._watchdog.stdout is None:
            return False
        try:
            self._watchdog.stdin.write(bytes([number]))
        except BrokenPipeError:
            return False
        return bool(self._watchdog.stdout.read(1))

    def terminate(self) -> None:
        """Ask its process to end in order, also when it is paused."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)

    def end(self, *, grace: float = GRACE_SECONDS) -> None:
        """End its process and wait until it is gone: in order within the grace, else by force."""
        if self._tool is not None:
            self._tool.kill()
            self._tool.wait()
        if self._watchdog is None:
            return
        if grace:
            self.terminate()
        try:
            self._watchdog.wait(grace)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._watchdog.wait()
        for pipe in (self._watchdog.stdin, self._watchdog.stdout):
            if pipe is not None:
                pipe.close()
        self._watchdog = None
        self.pid = 0

    def logged(self) -> list[str]:
        """Return the lines of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []

    def tail(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.logged()[-TAIL:]) or "(empty)"


def _environment() -> dict[str, str]:
    # Without UTF-8 Java cannot open a folder whose name is not plain ASCII.
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def cluster_id() -> str:
    """Return a new cluster id."""
    # A leading "-" would be read as an option.
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def free_ports(nodes: int) -> list[Ports]:
    """Return free ports for so many nodes."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(PORTS, len(PORTS)):
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            found.append(port)
            if len(found) == nodes * 2:
                return [Ports(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
    msg = f"no free ports between {PORTS.start} and {PORTS.stop} on {HOST}: end what uses them"
    raise PipelineError(msg)
