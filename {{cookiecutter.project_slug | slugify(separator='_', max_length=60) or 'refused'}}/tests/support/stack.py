"""The local stack, started as a user starts it, beside one that may run here: its own name, ports and volumes.

Guarantee: it is removed with all its data when it is closed, and a stack of another name is never touched.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from base64 import b64encode
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from tests.support.kafka import wait_until

from pipeline.local.node import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]
PORTS = ("KAFKA_PORT", "METRICS_PORT", "REGISTRY_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT", "UI_PORT")
PROFILE = ("--profile", "ui")
LABEL = "com.docker.compose.project"
# An image is built from its layers, or pulled; whatever takes longer than this hangs.
COMMAND_SECONDS = 600.0
UNCHECKED = ("", "none")
PULL_SECONDS = 300.0
REQUEST_SECONDS = 10.0


class State(NamedTuple):
    """What the engine says of a service's container."""

    runs: bool
    health: str
    exit_code: int


class Stack:
    """The stack under a name of its own; a context manager that removes it at the latest."""

    def __init__(self) -> None:
        """Choose name and ports; nothing is started."""
        self.name = f"stack-test-{secrets.token_hex(4)}"
        self.ports = dict(zip(PORTS, (str(ports.client) for ports in free_ports(len(PORTS))), strict=True))
        self._started = False
        self.bootstrap = f"{HOST}:{self.ports['KAFKA_PORT']}"
        self.environ = {
            **os.environ,
            **self.ports,
            "COMPOSE_PROJECT_NAME": self.name,
            "GRAFANA_PASSWORD": secrets.token_urlsafe(),
            # For commands on this machine: those of the pipeline read it.
            "PIPELINE_SOURCE__BOOTSTRAP": self.bootstrap,
        }

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all of it, if it is still there."""
        if self._started:
            self.down()

    def compose_answers(self) -> bool:
        """Tell whether `docker compose` is here; it needs no engine for that."""
        return shutil.which("docker") is not None and not self._code("docker", "compose", "version")

    def up(self, services: Iterable[str]) -> None:
        """Start these services, and what they need, with `make up`."""
        self._started = True
        self.make("up", f"SERVICES={' '.join(services)}", f"ARGS={' '.join(PROFILE)}")

    def down(self) -> None:
        """Remove all of it with `make down`, its data too."""
        self.make("down", "ARGS=--volumes")
        self._started = False

    def make(self, *arguments: str) -> str:
        """Call `make` as a user does, with this Python."""
        ready = Path(sys.prefix) / ".ready"
        return self._run("make", "--no-print-directory", f"VENV={sys.prefix}", "-o", str(ready), *arguments)

    def compose(self, *arguments: str) -> str:
        """Call compose with the files of the project; without the profile it knows no user interface."""
        files = [str(path) for name in ("compose.yaml", "ops/compose.yaml") if (path := ROOT / name).exists()]
        named = [part for file in files for part in ("--file", file)]
        return self._run("docker", "compose", *named, *PROFILE, *arguments)

    @cached_property
    def services(self) -> dict[str, dict[str, Any]]:
        """All services, those of the profile `ui` too, as compose understands them."""
        found: dict[str, dict[str, Any]] = json.loads(self.compose("config", "--format", "json"))["services"]
        return found

    def missing(self) -> set[str]:
        """Return the services whose image is neither here nor to be had; that of the pipeline is built."""
        images = {name: service["image"] for name, service in self.services.items() if "build" not in service}
        return {name for name, image in images.items() if not (self._has(image) or self._pulled(image))}

    def state(self, service: str) -> State:
        """Return how a service is; one without a container is an error of the test."""
        ids = self.compose("ps", "--all", "--quiet", service).split()
        [found] = json.loads(self._run("docker", "inspect", *ids))
        state = found["State"]
        return State(state["Running"], state.get("Health", {}).get("Status", ""), state["ExitCode"])

    def wait_until_well(self, services: Iterable[str], seconds: float) -> None:
        """Wait until each is healthy, or has ended as it should; one that has failed is shown with its log."""
        for service in services:
            wait_until(partial(self._well, service), seconds, f"{service} is healthy")

    def left(self) -> dict[str, list[str]]:
        """Return what the engine holds of this stack: containers, volumes, networks."""
        name = ["--quiet", "--filter", f"label={LABEL}={self.name}"]
        kinds = {"containers": ["ps", "--all"], "volumes": ["volume", "ls"], "networks": ["network", "ls"]}
        return {kind: self._run("docker", *command, *name).split() for kind, command in kinds.items()}

    def ask(self, path: str, **parameters: str) -> Any:
        """Ask the API of Prometheus."""
        address = f"http://{HOST}:{self.ports['PROMETHEUS_PORT']}/api/v1/{path}?{urlencode(parameters)}"
        with build_opener(ProxyHandler({})).open(address, timeout=REQUEST_SECONDS) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def grafana(self, path: str) -> Any:
        """Ask the API of Grafana, as its administrator."""
        address = f"http://{HOST}:{self.ports['GRAFANA_PORT']}/api/{path}"
        named = b64encode(f"admin:{self.environ['GRAFANA_PASSWORD']}".encode()).decode()
        request = Request(address, headers={"Authorization": f"Basic {named}"})
        with build_opener(ProxyHandler({})).open(request, timeout=REQUEST_SECONDS) as answer:
            return json.load(answer)

    def value(self, expr: str) -> float:
        """Return the one value of an expression at this moment; 0 if there is none."""
        found = [float(series["value"][1]) for series in self.ask("query", query=expr)["result"]]
        assert len(found) <= 1, f"{expr} has {len(found)} values"
        return found[0] if found else 0.0

    def rules(self) -> set[str]:
        """Return in which states the rules of Prometheus are."""
        return {rule["health"] for group in self.ask("rules")["groups"] for rule in group["rules"]}

    def _well(self, service: str) -> bool:
        state = self.state(service)
        failed = state.exit_code != 0 or state.health == "unhealthy"
        assert not failed, f"{service}: {state}\n{self.compose('logs', '--tail', '50', service)}"
        if state.health in UNCHECKED:
            return state.runs != (service in self._ending)
        return state.health == "healthy"

    @cached_property
    def _ending(self) -> set[str]:
        """The services that others wait for the end of."""
        needs = [need for service in self.services.values() for need in service.get("depends_on", {}).items()]
        return {name for name, how in needs if how["condition"] == "service_completed_successfully"}

    def _has(self, image: str) -> bool:
        return not self._code("docker", "image", "inspect", image)

    def _pulled(self, image: str) -> bool:
        return not self._code("timeout", str(PULL_SECONDS), "docker", "pull", "--quiet", image)

    def _code(self, *command: str) -> int:
        return subprocess.run(
            command, env=self.environ, capture_output=True, check=False, timeout=COMMAND_SECONDS
        ).returncode

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
