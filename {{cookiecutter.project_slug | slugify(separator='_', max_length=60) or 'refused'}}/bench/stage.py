"""Where a benchmark runs: a real broker of its own, a folder for its files, the peer as a process, lines of progress.

The pipeline under measurement is `bench.peer`: all settings as shipped, bytes passed on, whatever the environment says,
as for any run: PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER=50000 changes a setting.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.workload import create
from pipeline.errors import PipelineError
from pipeline.lanes.topics import Topics
from pipeline.local.broker import Broker
from pipeline.local.processes import signal_all, tree
from pipeline.sections import Dedup
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pipeline.settings import Settings

# A start takes 10 to 20 s on two cores; a pipeline that has written nothing for so long never will.
STALL_SECONDS = 120.0
STOP_SECONDS = 40.0
# The one that the peer sets otherwise: the repeats of these benchmarks are repeated to the byte.
SHIPPED = {"PIPELINE_DEDUP__HASHES": str(Dedup().hashes)}
# Settings as shipped: nothing is set by environment.
UNCHANGED: Mapping[str, str] = MappingProxyType({})
TAIL = 15


@dataclass
class Stage:
    """A broker and what belongs to it."""

    broker: Broker
    folder: Path
    topics: Topics = field(init=False)
    started: float = field(default_factory=time.monotonic)
    _used: int = 0

    def __post_init__(self) -> None:
        """Connect."""
        self.topics = Topics(self.bootstrap)

    @property
    def bootstrap(self) -> str:
        """Address of the broker."""
        return self.broker.bootstrap

    @property
    def broker_pid(self) -> int:
        """The broker's process; 0 if it is none of this machine's."""
        return self.broker.pids.get(1, 0)

    def say(self, line: str) -> None:
        """Progress, on standard error: standard output has the figures."""
        print(f"[{time.monotonic() - self.started:6.1f} s] {line}", file=sys.stderr, flush=True)

    def fresh(self, name: str) -> str:
        """A name that was not used yet, by nobody on this broker."""
        self._used += 1
        return f"{name}-{self._used}-{uuid.uuid4().hex[:6]}"

    @contextmanager
    def relay(self, source: str, partitions: int, out: str = "", **environ: str) -> Iterator[Relay]:
        """The peer at work, in a process of its own; ended by SIGTERM, as by a supervisor. `out` may go on."""
        name = self.fresh(source)
        if not out:
            out = f"{name}-out"
            create(self.topics, out, partitions)
        folder = self.folder / name
        folder.mkdir()
        given = {"BOOTSTRAP": self.bootstrap, "IN_TOPIC": source, "OUT_TOPIC": out, "PARTITIONS": str(partitions)}
        with (folder / "log").open("wb") as log:
            started = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.peer"],
                env={**SHIPPED, **os.environ, **given, "STATE_DIR": str(folder), **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        relay = Relay(process, source, out, folder, started)
        try:
            yield relay
        finally:
            relay.stop()


@dataclass
class Relay:
    """A peer that runs."""

    process: subprocess.Popen[bytes]
    source: str
    out: str
    folder: Path
    started: float

    @property
    def settings(self) -> Settings:
        """What it runs by, once it has started."""
        return load(self.folder / "pipeline.toml", {})

    @property
    def topics(self) -> tuple[str, ...]:
        """All that it has written to."""
        return self.out, self.settings.lane_topic, self.settings.output.dead_letter_topic

    def check(self, deadline: float) -> None:
        """Raise with the end of its log if it has ended by itself, or the time is over."""
        ended = self.process.poll()
        if ended is not None or time.monotonic() > deadline:
            why = "wrote nothing more in time" if ended is None else f"ended by itself, exit code {ended}"
            lines = (self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
            raise PipelineError("\n".join([f"the pipeline {why}; its log ends:", *lines]))

    def kill(self) -> None:
        """SIGKILL to all of it, at once."""
        signal_all(tree(self.process.pid), signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End in order."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def stage() -> Iterator[Stage]:
    """A broker and a folder, for as long as it lasts; SIGTERM ends what was started, like Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Broker(Path(folder, "kafka")) as broker:
        yield Stage(broker, Path(folder))


def alone(
    description: str | None, options: dict[str, Any], measure: Callable[..., dict[str, Any]], show: Callable[..., str]
) -> None:
    """The command of one benchmark: an option for each figure, `--json` for machines; ends with 1 if it failed."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    for name, default in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"{default}")
    given = vars(parser.parse_args())
    as_json = given.pop("json")
    try:
        with stage() as here:
            result = measure(here, **given)
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(result) if as_json else show(result))
