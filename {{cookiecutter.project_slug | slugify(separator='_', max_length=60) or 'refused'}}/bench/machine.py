"""What processes cost, and what machine they ran on, as /proc tells it.

CPU seconds and memory are of a process and all that came of it, by part: the driver's Python, Spark's Java process,
its Python workers. A process that ended between two looks counts with what it was last seen to have. Memory is
resident memory: pages that workers share with the process they were forked from count in each of them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from bench.figures import slope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
EVERY_SECONDS = 0.2
# What is kept of a curve: a picture shows no more.
POINTS = 400
PROC = Path("/proc")
DRIVER, JVM, WORKERS, BROKER = "driver", "jvm", "workers", "broker"
PARTS = (DRIVER, JVM, WORKERS)


class Process(NamedTuple):
    """One process at one moment."""

    parent: int
    cpu_seconds: float
    bytes: int


class Moment(NamedTuple):
    """CPU seconds since the first look, and memory, by part; and what all else on the machine used of its cores."""

    at: float
    cpu_seconds: dict[str, float]
    bytes: dict[str, int]
    other_seconds: float


def parse_stat(text: bytes) -> Process:
    """A process from its /proc/PID/stat; its name, in brackets, may hold spaces and brackets itself."""
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE)


def parse_busy(text: str) -> float:
    """Seconds for which the cores of the machine were busy, from /proc/stat: all but idle and waiting for disks."""
    counts = [int(field) for field in text.splitlines()[0].split()[1:9]]
    return (sum(counts) - counts[3] - counts[4]) / TICK


def part_of(command: bytes) -> str:
    """Which part of a job a process is, from its /proc/PID/cmdline."""
    arguments = command.split(b"\0")
    if any(argument.startswith(b"pyspark.") for argument in arguments):
        return WORKERS
    return JVM if arguments[0].rpartition(b"/")[2] == b"java" else DRIVER


def processes() -> dict[int, Process]:
    """All processes of the machine."""
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = parse_stat((folder / "stat").read_bytes())
            except OSError:  # ended meanwhile
                continue
    return found


def descendants(pid: int, everyone: dict[int, Process]) -> Iterator[int]:
    """The process and all that came of it."""
    children = defaultdict(list)
    for child, process in everyone.items():
        children[process.parent].append(child)
    found = [pid]
    for member in found:
        found += children[member]
        yield member


class Sampler:
    """Looks at a process tree, and at a broker, until it is left; a context manager."""

    def __init__(self, pid: int, broker: int = 0) -> None:
        """`pid` is the root of the job; what it had used before counts not."""
        self._pid, self._broker = pid, broker
        self._parts: dict[int, str] = {}
        self._used: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._busy_before = busy()
        self._own_before = time.process_time()
        self.moments: list[Moment] = []
        self.look()
        self._before = dict(self._used)
        self.moments.clear()
        self.look()

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with a last look."""
        self._ended.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """One look."""
        everyone = processes()
        sizes: dict[str, int] = defaultdict(int)
        for pid in [*descendants(self._pid, everyone), self._broker]:
            process = everyone.get(pid)
            part = BROKER if pid == self._broker else self._part(pid)
            if process is not None and part is not None:
                self._used[pid] = process.cpu_seconds
                sizes[part] += process.bytes
        self.moments.append(Moment(time.monotonic(), self._cpu(), dict(sizes), self._other()))

    def until(self, at: float) -> Moment:
        """The last moment up to then."""
        return [moment for moment in self.moments if moment.at <= at + EVERY_SECONDS][-1]

    def peak(self, *parts: str) -> int:
        """The most memory that these parts had together."""
        return max(sum(moment.bytes.get(part, 0) for part in parts) for moment in self.moments)

    def _cpu(self) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for pid, seconds in self._used.items():
            sums[BROKER if pid == self._broker else self._parts[pid]] += seconds - self._before.get(pid, 0.0)
        return {part: round(seconds, 2) for part, seconds in sums.items()}

    def _other(self) -> float:
        mine = sum(self._used.values()) - sum(self._before.values())
        if self._pid != os.getpid():
            mine += time.process_time() - self._own_before
        return max(busy() - self._busy_before - mine, 0.0)

    def _part(self, pid: int) -> str | None:
        try:
            command = (PROC / str(pid) / "cmdline").read_bytes()
        except OSError:
            return self._parts.get(pid)
        # A process that is about to run another program has its parent's name: look until it has settled.
        self._parts[pid] = part_of(command) if command else self._parts.get(pid, DRIVER)
        return self._parts[pid]

    def _work(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            self.look()


def flatness(moments: Sequence[Moment]) -> dict[str, Any]:
    """Memory of Java process and workers over time: the second quarter and the last, the rise in the second half."""
    first = moments[0].at
    points = [
        (moment.at - first, (moment.bytes.get(JVM, 0) + moment.bytes.get(WORKERS, 0)) / 1e6) for moment in moments
    ]
    quarter = len(points) // 4
    return {
        "early_mb": statistics.median(size for _, size in points[quarter : 2 * quarter]),
        "late_mb": statistics.median(size for _, size in points[3 * quarter :]),
        "rise_mb_per_minute": slope(points[2 * quarter :]) * 60,
        "points": points[:: max(len(points) // POINTS, 1)],
    }


def busy() -> float:
    """Seconds for which the cores were busy, since the machine was started."""
    return parse_busy((PROC / "stat").read_text(encoding="ascii"))


def described() -> dict[str, str | int | float]:
    """The machine, for whoever reads the figures."""
    info = (PROC / "cpuinfo").read_text(encoding="utf-8")
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count() or 0,
        "processor": names[0] if names else platform.machine(),
        "memory_gib": round(pages * PAGE / 1024**3, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "loop_seconds": round(loop_seconds(), 3),
        "digest_seconds": round(digest_seconds(), 3),
    }


def loop_seconds(turns: int = 3_000_000) -> float:
    """CPU seconds of a plain loop: how fast Python is on this machine just now, for a comparison with another one."""
    started = time.process_time()
    total = 0
    for turn in range(turns):
        total += turn
    return time.process_time() - started


def digest_seconds(mib: int = 64) -> float:
    """CPU seconds of a digest: how fast compiled code is just now. Neighbours may slow the one and not the other."""
    data = bytes(1024 * 1024)
    started = time.process_time()
    digest = hashlib.sha256()
    for _ in range(mib):
        digest.update(data)
    return time.process_time() - started
