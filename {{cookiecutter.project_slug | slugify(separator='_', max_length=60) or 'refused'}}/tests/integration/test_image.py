"""The image of the pipeline, as an operator meets it: provisioned, run, found healthy, stopped, audited."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from testcontainers.core.docker_client import DockerClient
from tests.support.brokers import own_broker
from tests.support.job import STOP_SECONDS
from tests.support.kafka import wait_until
from tests.support.running import JOB_SECONDS, ROOT

from pipeline.local.lookout import Lookout
from pipeline.local.node import free_ports
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.models.containers import Container

    from pipeline.local.broker import Broker

IMAGE = os.environ.get("PIPELINE_IMAGE", "")
PAYMENTS = 2_000
# It has 1.35 GB, most of it Spark, Java and Arrow. With pip's cache or a whole Java it would be more than this.
LARGEST = 1_500_000_000
SECOND = 1_000_000_000  # Docker counts in nanoseconds
pytestmark = [
    pytest.mark.image,
    pytest.mark.long,
    pytest.mark.skipif(not IMAGE, reason="PIPELINE_IMAGE names no image: make image-test"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Return a broker of its own: the topics of the image have fixed names."""
    with own_broker() as running:
        yield running


class Image:
    """Runs the image in the network of this machine, with the settings of a first user: all from the environment."""

    def __init__(self, bootstrap: str) -> None:
        self._docker = DockerClient().client
        found: dict[str, Any] = self._docker.images.get(IMAGE).attrs
        self.attrs: dict[str, Any] = found["Config"]
        self.size: int = found["Size"]
        self.environ = {
            "PIPELINE_SOURCE__BOOTSTRAP": bootstrap,
            "PIPELINE_OUTPUT__REPLICATION": "1",
            "PIPELINE_METRICS__PORT": str(free_ports(1)[0].client),
            # Nobody answers there: what would be downloaded when it runs, fails.
            "PIPELINE_MAVEN": "http://127.0.0.1:9",
        }

    def start(self, *command: str, **given: Any) -> Container:
        """Start a command; somebody else removes the container."""
        limits = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "network_mode": "host"}
        return self._docker.containers.run(
            IMAGE, list(command), detach=True, environment=self.environ, **limits, **given
        )

    def run(self, *command: str, **given: Any) -> str:
        """Run a command to its end, which must be a good one; returns all that it said."""
        container = self.start(*command, **given)
        try:
            code = container.wait(timeout=JOB_SECONDS)["StatusCode"]
            said: str = container.logs().decode()
        finally:
            container.remove(force=True)
        assert code == 0, said
        return said

    def send(self, *arguments: str) -> str:
        """Run the upstream."""
        return self.run("-m", "pipeline.local.sample", *arguments, entrypoint="python")


@pytest.fixture
def image(broker: Broker) -> Image:
    """Return the image, with a broker for it."""
    return Image(broker.bootstrap)


def test_the_image_runs_as_nobody_special_and_tells_what_it_is(image: Image) -> None:
    assert image.run("-c", "import os; print(os.getuid())", entrypoint="python").strip() == "10001"
    labels = image.attrs["Labels"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert labels["org.opencontainers.image.title"] == "pipeline"
    assert labels["org.opencontainers.image.version"] == project["version"]
    assert image.attrs["Entrypoint"][0] == "tini"


def test_the_image_is_no_larger_than_it_must_be(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nimage: {image.size / 1e9:.2f} GB")  # noqa: T201
    assert image.size < LARGEST


def test_the_image_provisions_runs_is_healthy_stops_when_asked_and_its_audit_is_exact(image: Image) -> None:
    image.send("create")
    assert "lane" in image.run("provision")
    image.send("send", "--payments", str(PAYMENTS), "--seconds", "0")
    often = {"interval": 2 * SECOND, "timeout": 15 * SECOND, "start_period": 120 * SECOND, "retries": 3}
    container = image.start("run", healthcheck=often)
    try:
        wait_until(lambda: health(container) == "healthy", JOB_SECONDS, "the container is healthy")
        wait_until_caught_up(image)
        container.stop(timeout=int(STOP_SECONDS))
        code, said = container.wait(timeout=STOP_SECONDS)["StatusCode"], container.logs().decode()
    finally:
        container.remove(force=True)
    assert code == 0, said
    assert "signal=SIGTERM" in said
    assert "0 lost, 0 duplicated" in image.run("audit")


def health(container: Container) -> str:
    """Return what the engine thinks of a container, which must run."""
    container.reload()
    assert container.status == "running", container.logs().decode()
    found: str = container.attrs["State"]["Health"]["Status"]
    return found


def wait_until_caught_up(image: Image) -> None:
    """Wait until the lanes have passed all that was sent."""
    settings = load(ROOT / "pipeline.toml", image.environ)
    with Lookout(settings) as lookout:
        wait_until(lambda: lookout.progress() >= lookout.total > 0, JOB_SECONDS, "the pipeline has caught up")
