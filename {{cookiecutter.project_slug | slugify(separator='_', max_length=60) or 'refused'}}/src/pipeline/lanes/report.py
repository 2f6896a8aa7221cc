"""Step 6, report: what a task tells the driver about its lane.

Guarantee: figures are the lane's cumulative ones, taken from its committed record, so a driver that sets them (never
adds, never lowers) counts nothing twice, however often a task was repeated.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pipeline.errors import Denied, PipelineError, RegistryAway, Replaced, SafeStop, Stopped
from pipeline.kafka import TransactionFailed
from pipeline.lanes.recall import Recalled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pipeline.lanes.kept import Kept

# What a task may tell its driver to stop for; anything else fails the task, so that Spark runs it anew.
STOPS: dict[str, type[PipelineError]] = {
    "replaced": Replaced,
    "safe-stop": SafeStop,
    "stopped": Stopped,
    "failed": TransactionFailed,
    "registry": RegistryAway,
    "denied": Denied,
}

# Upper bounds of the buckets of every histogram, in seconds: from a phase on one machine to a time-out.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
# An age beyond this is told as this: one timestamp of 1970 would count as half a century, and drown the sum.
LONGEST_SECONDS = 30 * 86_400


class Timed(Protocol):
    """Source records that a commit covers, as far as their ages are concerned."""

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Kafka's time of each, in ms."""
        ...


@dataclass(slots=True)
class Commit:
    """One committed transaction: rows of the source it covers, seconds by phase, and the age of its rows.

    `ages` counts the rows by their age at commit: one number for each of the buckets, one for all beyond.
    """

    rows: int = 0
    written: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    committed_ms: int = 0
    ages: list[int] = field(default_factory=list)
    age_seconds: float = 0.0  # the sum over all rows
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; one that comes twice is added up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def describe(self, parts: Sequence[Timed], *, written: int) -> Commit:
        """Note what was committed, right after; rows come in offset order, their timestamps need not."""
        self.committed_ms = time.time_ns() // 1_000_000
        self.written = written
        stamps = np.concatenate([np.empty(0, np.int64), *(part.timestamps for part in parts)])
        self.rows = len(stamps)
        self.oldest_ms = int(stamps.min()) if self.rows else None
        self.newest_ms = int(stamps.max()) if self.rows else None
        # A record without a timestamp (-1, or 0) has no age; one from a clock ahead of ours is new, not of the future.
        ages = np.clip(self.committed_ms - stamps[stamps > 0], 0, LONGEST_SECONDS * 1000) / 1000
        self.ages = np.bincount(np.searchsorted(BUCKETS, ages), minlength=len(BUCKETS) + 1).tolist()
        self.age_seconds = float(ages.sum())
        return self


@dataclass(slots=True)
class LaneReport:
    """The outcome of one task."""

    partition: int
    record: bytes = b""
    end: int = -1
    kept: Kept | None = None  # where the record is for the next task of the lane, if it is a large one
    by: str = ""  # as in what is recalled
    skipped: int = 0
    commits: list[Commit] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)  # of attempts, see `outcome.py`
    row_bytes: int = 0  # what a row took on its way to the task, at most
    stop: str = ""
    stop_message: str = ""

    @property
    def recalled(self) -> Recalled:
        """What the lane's next task is told of it."""
        return Recalled(self.record, self.end, self.by)

    def note_failure(self, error: PipelineError) -> None:
        """Count a failed attempt by its kind."""
        kind = type(error).__name__.lower()
        self.failures[kind] = self.failures.get(kind, 0) + 1

    def note_stop(self, error: PipelineError) -> None:
        """Hand a stop to the driver as a result: raised in the task, Spark would only repeat it."""
        self.stop = next(name for name, kind in STOPS.items() if isinstance(error, kind))
        self.stop_message = str(error)

    def raise_stop(self) -> None:
        """On the driver: end the job for the reason the task gave."""
        if self.stop:
            raise STOPS[self.stop](self.stop_message)
