"""Where the broker of the integration tests comes from: KAFKA=container, KAFKA=embedded, or KAFKA=host:port.

Without a choice it is a container if a Docker engine answers, else the embedded broker. The same tests pass on each.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.kafka import DEADLINE_SECONDS, QUIET

from pipeline.errors import PipelineError
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

VARIABLE = "KAFKA"
CONTAINER, EMBEDDED = "container", "embedded"
ADDRESS = re.compile(r"[^\s,]+:\d+(,[^\s,]+:\d+)*")
# An engine that is there answers at once; one that hangs must not hang the tests.
ENGINE_SECONDS = 5


class GivenBroker(Broker):
    """A cluster that somebody else runs: used, never hurt."""

    def __init__(self, bootstrap: str) -> None:
        """Take its address."""
        super().__init__()
        self._address = bootstrap

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return self._address

    def start(self) -> None:
        """Make sure that it answers."""
        try:
            AdminClient({"bootstrap.servers": self._address, **QUIET}).list_topics(timeout=DEADLINE_SECONDS)
        except KafkaException as error:
            msg = f"no Kafka answers at {self._address} ({VARIABLE}): {error}"
            raise PipelineError(msg) from error

    def stop(self) -> None:
        """Leave it running."""

    def data(self, node: int = 1) -> Path:
        """Skip the test that asks."""
        pytest.skip(f"reads the files of node {node}, which a cluster that was given does not show")


def engine_answers() -> bool:
    """Tell whether there is a Docker engine."""
    try:
        from docker.errors import DockerException  # noqa: PLC0415  half a second, for those who need it
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415
    except ImportError:
        return False
    try:
        return bool(DockerClient(timeout=ENGINE_SECONDS).client.ping())
    except (DockerException, OSError):
        return False


def choose(asked: str, answers: Callable[[], bool] = engine_answers) -> str:
    """Return `container`, `embedded` or an address, or say what may be asked for."""
    if not asked:
        return CONTAINER if answers() else EMBEDDED
    if asked not in (CONTAINER, EMBEDDED) and not ADDRESS.fullmatch(asked):
        msg = f"{VARIABLE}={asked}: must be {CONTAINER}, {EMBEDDED} or host:port"
        raise pytest.UsageError(msg)
    return asked


@cache
def chosen() -> str:
    """Return what this process's environment chooses."""
    return choose(os.environ.get(VARIABLE, ""))


def shared_broker() -> Broker:
    """Make the broker that tests share; not started yet."""
    return GivenBroker(chosen()) if ADDRESS.fullmatch(chosen()) else own_broker()


def own_broker(properties: Mapping[str, str] | None = None) -> Broker:
    """Make a broker that one test may hurt; not started yet. A cluster that was given is spared."""
    if chosen() != CONTAINER:
        return Broker(properties=properties)
    from tests.support.container import ContainerBroker  # noqa: PLC0415  needs the packages of testcontainers

    return ContainerBroker(properties)


def described() -> str:
    """Say in a line what the tests run on."""
    if chosen() != CONTAINER:
        return f"kafka: {chosen()}"
    from tests.support.container import IMAGE  # noqa: PLC0415

    return f"kafka: {CONTAINER} {IMAGE}"
