"""Prometheus's own programs: promtool, and a real server that scrapes a real job by the project's own configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from tests.support.kafka import DEADLINE_SECONDS, wait_until

from pipeline.local.node import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "prometheus"
DASHBOARDS = ROOT / "ops" / "grafana" / "dashboards"
INSTALL = "ops/prometheus/install.sh"
REQUEST_SECONDS = 30.0


def program(name: str) -> str:
    """Find a program beside this Python or on the path; without it skip, in CI fail if it could have been installed."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        reason = f"{name} is not installed; get it with `{INSTALL} {Path(sys.executable).parent}`"
        if os.environ.get("CI") == "true" and shutil.which("apt-get"):
            pytest.fail(f"in CI: {reason}")
        pytest.skip(reason)
    return found


def promtool(*arguments: str, cwd: Path = OPS, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    command = [program("promtool"), *arguments]
    return subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, timeout=120, check=False)


def rules(name: str) -> list[dict[str, Any]]:
    """Return all rules of a file."""
    groups = yaml.safe_load((OPS / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def substituted(expr: str, variables: Mapping[str, str]) -> str:
    """Put values in the place of Grafana's variables; none may be left."""
    for name, value in variables.items():
        expr = expr.replace(name, value)
    assert not re.search(r"\$(__)?(rate_interval|range|interval|datasource)", expr), expr
    return expr


class Panel(NamedTuple):
    """One panel with queries."""

    board: str
    title: str
    queries: tuple[str, ...]


def panels() -> list[Panel]:
    """Return all panels of all dashboards that ask something."""
    return [
        Panel(path.stem, panel["title"], tuple(target["expr"] for target in panel["targets"]))
        for path in sorted(DASHBOARDS.glob("*.json"))
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        if panel.get("targets")
    ]


class Prometheus:
    """A server on this machine with the project's scrape job and rules, every second; a context manager."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        """Nothing is started yet."""
        self._folder = folder
        self._port = free_ports(1)[0].client
        self._config = folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(self._shortened(list(targets))), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def _shortened(self, targets: list[str]) -> dict[str, Any]:
        """Take the shipped configuration, with other addresses and shorter intervals, and nothing else changed."""
        config: dict[str, Any] = yaml.safe_load((OPS / "prometheus.yml").read_text(encoding="utf-8"))
        for name in config["rule_files"]:
            loaded = yaml.safe_load((OPS / name).read_text(encoding="utf-8"))
            for group in loaded["groups"]:
                group.pop("interval", None)
            (self._folder / name).write_text(yaml.safe_dump(loaded), encoding="utf-8")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        [job] = config["scrape_configs"]
        job["static_configs"] = [{"targets": targets}]
        return config

    def __enter__(self) -> Self:
        """Start, and wait until it answers."""
        command = [
            program("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._is_ready, what="Prometheus is ready")
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(DEADLINE_SECONDS)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text(encoding="utf-8")
        try:
            return bool(self.ask("query", query="vector(1)"))
        except OSError:
            return False

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Ask its API; a query that is no PromQL is an error of the test."""
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(parameters)}"
        with build_opener(ProxyHandler({})).open(address, timeout=REQUEST_SECONDS) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def now(self, expr: str) -> list[float]:
        """Return the values of an expression at this moment."""
        return [float(series["value"][1]) for series in self.ask("query", query=expr)["result"]]

    def value(self, expr: str) -> float:
        """Return the one value of an expression at this moment; 0 if there is none."""
        found = self.now(expr)
        assert len(found) <= 1, f"{expr} has {len(found)} values"
        return found[0] if found else 0.0

    def over(self, expr: str, start: float, end: float) -> list[list[float]]:
        """Return what each series of an expression was in each second up to `end`, without what was no number."""
        found = self.ask("query_range", query=expr, start=end - int(end - start), end=end, step=1)["result"]
        values = [[float(value) for _, value in series["values"]] for series in found]
        return [numbers for series in values if (numbers := [value for value in series if value == value])]  # noqa: PLR0124  not NaN
