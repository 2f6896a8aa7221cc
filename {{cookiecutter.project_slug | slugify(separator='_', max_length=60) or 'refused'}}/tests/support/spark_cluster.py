"""A Spark standalone cluster of separate processes: a master, workers, and executors that can be killed or paused."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyspark
from supply.package import locked, pack
from supply.submit import UNPACKED, client_environ
from tests.support.kafka import fresh, wait_until

from pipeline.local import watchdog
from pipeline.local.java import java
from pipeline.local.node import free_ports
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_SECONDS = 90.0
# Java that starts quickly and stays small: there are five of them beside the driver's and Kafka's.
SMALL = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
EXECUTOR = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": " ".join(SMALL[:2]),
    # A worker that is paused is given up soon, as an operator would want in a test.
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}
# An interpreter without any package: all that a job needs must come out of the archive.
BARE_PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


def packed(into: Path) -> Path:
    """Pack as `make package` does, with the versions that are installed here; the lock is for its own test."""
    pack(into, {name: importlib.metadata.version(name) for name in locked()})
    return into


class SparkCluster:
    """A context manager; a worker gives up a master that it lost, and a master a worker, within seconds."""

    def __init__(self, folder: Path, hosts: Sequence[str] = (HOST, HOST)) -> None:
        """Nothing is started yet; there is a worker for each of `hosts`, all of which are this machine."""
        self._folder = folder
        self._exits = ExitStack()
        self._web, port = (ports.client for ports in free_ports(2))
        self.master = f"spark://{HOST}:{port}"
        self._hosts = tuple(hosts)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._jvms: dict[int, int] = {}  # by their guards
        self._places: dict[int, str] = {}

    def __enter__(self) -> Self:
        """Start all processes; a job that is started with `environ` finds them there."""
        port = self.master.rpartition(":")[2]
        self._start("master.Master", "--host", HOST, "--port", port, "--webui-port", str(self._web))
        self._start_workers()
        return self

    def heal(self) -> None:
        """Start the workers that do not run, and wait until all are registered."""
        self._start_workers()
        wait_until(lambda: self.state().get("aliveworkers") == len(self._hosts), START_SECONDS, "the workers are there")

    def _start_workers(self) -> None:
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        missing = list(self._hosts)
        for worker in self.workers:
            missing.remove(self._places[worker.pid])
        for host in missing:
            work = ["--work-dir", str(self._folder / fresh("work")), "--webui-port", "0"]
            size = ["--cores", "1", "--memory", "600m"]
            self.workers.append(self._start("worker.Worker", "--host", host, *size, *work, self.master))
            self._places[self.workers[-1].pid] = host

    def __exit__(self, *_: object) -> None:
        """End all of them, with what came of them."""
        self._exits.close()

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = next(iter(pyspark.__path__))
        classes = f"{home}/jars/*"
        [core] = Path(home, "jars").glob("spark-core_*.jar")
        # As Spark's own scripts set them; a worker starts its executors by them.
        environ = {"SPARK_HOME": home, "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0]}
        options = [*SMALL, "-Dspark.worker.timeout=15", "-cp", classes]
        log = self._exits.enter_context((self._folder / f"{fresh(role)}.log").open("wb"))
        # It ends the JVM when this process is gone, however that was; executors end without their worker.
        guard = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), ""]
        process = subprocess.Popen(
            [*guard, java(), *options, f"org.apache.spark.deploy.{role}", *arguments],
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        self._exits.callback(process.__exit__, None, None, None)
        self._exits.callback(lambda: signal_all(tree(process.pid), signal.SIGKILL))
        assert process.stdout is not None
        self._jvms[process.pid] = int(process.stdout.readline())
        return process

    def state(self) -> dict[str, Any]:
        """Ask the master; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=5) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def executor_of(self, pid: int) -> int:
        """Return the executor that a Python worker belongs to: a child of one of the cluster's workers."""
        [found] = [executor for executor in self.executors() if pid in tree(executor)]
        return found

    def executors(self) -> list[int]:
        """Return the processes of all executors."""
        jvms = {self._jvms[worker.pid] for worker in self.workers}
        return [pid for jvm in jvms for pid in tree(jvm) if _parent(pid) == jvm]

    def worker_of(self, executor: int) -> int:
        """Return the worker that started an executor."""
        return _parent(executor)

    def environ(
        self, package: Path, faults: Mapping[str, str], more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """What makes a job that is started with it a submitted one; its fault points are armed in all its processes."""
        self.heal()
        conf = {**EXECUTOR, "spark.executorEnv.PYTHONPATH": f"{UNPACKED}/lib:{ROOT}", **(more or {})}
        conf |= {f"spark.executorEnv.{name}": value for name, value in faults.items()}
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return {**client_environ(package, self.master, BARE_PYTHON, options), **faults}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    except OSError:
        return 0
