"""A real Kafka in a container, through testcontainers, with the face of the embedded broker: tests run on either.

Guarantee: `start` returns when the broker answers and takes transactions. Address and data stay the same over kill,
pause and restart; when `stop` returns, the container and its volumes are gone.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from docker.errors import APIError
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from tests.support.kafka import QUIET, wait_until

from pipeline.errors import PipelineError
from pipeline.local.broker import ATTEMPTS, HEAP, START_SECONDS, Broker
from pipeline.local.node import ANSWER_SECONDS, GRACE_SECONDS, HOST, Ports, cluster_id, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.models.containers import Container

# Any image will do that makes KAFKA_A_B=x the property a.b=x, as Apache's own and Confluent's do. The version is that
# of the embedded broker; a test compares them.
DEFAULT_IMAGE = "apache/kafka:4.3.1"
IMAGE = os.environ.get("KAFKA_IMAGE") or DEFAULT_IMAGE
CLIENT, CONTROLLER, BROKER = 9092, 9093, 9094
# A listener of its own for what the broker asks itself: from inside it cannot reach the port that clients are given.
LISTENERS = {
    "node.id": "1",
    "listeners": f"CLIENT://:{CLIENT},BROKER://{HOST}:{BROKER},CONTROLLER://{HOST}:{CONTROLLER}",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "/var/lib/kafka/data",
}
TAKEN = ("port is already allocated", "address already in use")
LOG_LINES = 200


class ContainerBroker(Broker):
    """One Kafka node in a container; a context manager that starts it and removes it."""

    def __init__(self, properties: Mapping[str, str] | None = None, image: str = IMAGE) -> None:
        """Describe the broker; nothing is started. `properties` go over the defaults of the embedded one."""
        super().__init__(properties=properties)
        self._image = image
        self._address = ""
        self._run: DockerContainer | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return self._address

    @property
    def pids(self) -> dict[int, int]:
        """None: its processes are the engine's, not this machine's to signal."""
        return {}

    def log(self, node: int = 1) -> Path:
        """Return a copy of what it has said lately."""
        path = Path(tempfile.gettempdir()) / f"kafka-container-{self._container.short_id}-{node}.log"
        path.write_bytes(self._container.logs(tail=LOG_LINES))
        return path

    def data(self, node: int = 1) -> Path:
        """Skip the test that asks: its files are in the container."""
        pytest.skip(f"reads the files of node {node}, which a broker in a container does not show")

    def start(self) -> None:
        """Create and start the container, and wait until it answers."""
        for left in reversed(range(ATTEMPTS)):
            try:
                self._create()
            except APIError as error:
                self.stop()
                # Another process may take a port between the choice and its use.
                if not (left and any(words in str(error) for words in TAKEN)):
                    msg = f"no container of {self._image} can be started: {error}; KAFKA=embedded does without"
                    raise PipelineError(msg) from error
            else:
                break
        self._await_ready()
        self._warm_up(time.monotonic() + START_SECONDS)

    def stop(self) -> None:
        """Remove the container with its data."""
        if self._run is not None:
            self._run.stop()
            self._run = None

    def kill(self, node: int = 1) -> None:
        """Kill it (SIGKILL); returns when it is gone."""
        del node
        self._container.kill()
        self._container.wait(timeout=GRACE_SECONDS)

    def pause(self, node: int = 1) -> None:
        """Freeze it: connections stay open, nothing answers."""
        del node
        self._container.pause()

    def resume(self, node: int = 1) -> None:
        """Let it go on."""
        del node
        self._container.unpause()

    def restart(self, node: int = 1) -> None:
        """Start it again, on its old address and data, and wait until it answers; ends it in order if it runs."""
        del node
        self._container.restart(timeout=int(GRACE_SECONDS))
        self._await_ready()

    @property
    def _container(self) -> Container:
        if self._run is None:
            msg = "this broker was not started"
            raise PipelineError(msg)
        return self._run.get_wrapped_container()

    def _create(self) -> None:
        host = DockerClient().host()
        # "localhost" may be an IPv6 address as well, at which nothing answers. The port is a fixed one: one that the
        # engine chooses would be another after each restart, and clients would be sent to the old.
        self._ports = [Ports(free_ports(1)[0].client, CONTROLLER)]
        self._address = f"{HOST if host == 'localhost' else host}:{self._ports[0].client}"
        self._run = DockerContainer(self._image, env=self._environ()).with_bind_ports(CLIENT, self._ports[0].client)
        self._run.start()

    def _environ(self) -> dict[str, str]:
        advertised = {"advertised.listeners": f"CLIENT://{self._address},BROKER://{HOST}:{BROKER}"}
        properties = {**self._settings(), **LISTENERS, **advertised, **self._properties}
        environ = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}
        return {**environ, "CLUSTER_ID": cluster_id(), "KAFKA_HEAP_OPTS": f"-Xmx{HEAP[1]}"}

    def _await_ready(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._address, "reconnect.backoff.max.ms": 100, **QUIET})
        wait_until(partial(self._answers, admin), START_SECONDS, f"Kafka in a container answers at {self._address}")

    def _answers(self, admin: AdminClient) -> bool:
        with suppress(KafkaException):
            return bool(admin.list_topics(timeout=ANSWER_SECONDS).brokers)
        self._container.reload()
        status = self._container.status
        assert status == "running", f"the container of {self._image} is {status}; its log:\n{self.log().read_text()}"
        return False
