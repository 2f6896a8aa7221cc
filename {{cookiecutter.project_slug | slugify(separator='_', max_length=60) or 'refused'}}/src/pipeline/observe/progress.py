"""What a run tells the outside: one line per batch, figures for metrics, progress for lag tools.

Guarantee: everything shown comes from committed lane records; showing it never fails the job.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pipeline.lanes.outcome import Outcome
from pipeline.lanes.record import LaneRecord, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport
    from pipeline.sections import Delivery

logger = logging.getLogger("pipeline")

# What is not promised under a delivery that was chosen by setting.
WEAKER = {
    "at-least-once": "a crash may repeat output, and nothing that the upstream sent twice is held back",
    "at-most-once": "a crash may lose output",
}
# What windows do with it: dedup by a ledger needs the lanes path, and that of any id a watermark of its own.
COUNTED_TWICE = "windows count twice what the upstream sent twice"


@dataclass
class Batch:
    """One micro-batch, once all its lanes have committed."""

    id: int
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    reports: list[LaneReport] = field(default_factory=list)
    lanes: dict[int, LaneRecord] = field(default_factory=dict)  # without their ledgers: the next batch waits for this

    def done(self, reports: list[LaneReport]) -> Batch:
        """Take the reports in."""
        self.seconds = time.monotonic() - self.started
        self.reports = reports
        # A lane that was stopped before its first commit has no record to show.
        self.lanes = {report.partition: decode(report.record, ledger=False) for report in reports if report.record}
        return self


class Watcher(Protocol):
    """Something that is told of a run's progress."""

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
        """Called once the lanes are taken over."""

    def on_batch(self, batch: Batch) -> None:
        """Called after each batch."""


class Observer:
    """Tells every watcher, and shields the job from them."""

    def __init__(self, watchers: Iterable[Watcher] = (), *, dedup: str = "sequence") -> None:
        """Watchers are told in this order; `dedup` is what knows the upstream's repeats again, or "none"."""
        self._watchers = list(watchers)
        self._dedup = dedup

    def on_start(self, run: int, recalled: Mapping[int, Recalled], delivery: Delivery) -> None:
        """The lanes are taken over; what is delivered less than exactly once is said out loud."""
        lanes = {partition: decode(lane.value) for partition, lane in recalled.items()}
        logger.info(
            "run=%d lanes=%d next_offsets=%d delivery=%s atomicity=%s dedup=%s",
            run,
            len(lanes),
            sum(lane.next_offset for lane in lanes.values()),
            delivery.semantics,
            delivery.atomicity,
            self._dedup,
        )
        if delivery.semantics in WEAKER:
            logger.warning("delivery=%s: %s", delivery.semantics, WEAKER[delivery.semantics])
        elif self._dedup == "none":
            logger.warning(
                "dedup=none: %s: let a job of its own dedup into the topic that this one reads", COUNTED_TWICE
            )
        for watcher in self._watchers:
            try:
                watcher.on_start(run, lanes)
            except Exception:
                logger.exception("watcher=%s failed at start", type(watcher).__name__)

    def on_batch(self, batch: Batch) -> None:
        """A batch is committed."""
        commits = [commit for report in batch.reports for commit in report.commits]
        logger.info(
            "batch=%d seconds=%.3f lanes=%d transactions=%d rows=%d written=%d skipped=%d failures=%d",
            batch.id,
            batch.seconds,
            len(batch.reports),
            len(commits),
            sum(commit.rows for commit in commits),
            sum(commit.written for commit in commits),
            sum(report.skipped for report in batch.reports),
            sum(sum(report.failures.values()) for report in batch.reports),
        )
        if timed_out := sum(report.outcomes.get(Outcome.TIMED_OUT, 0) for report in batch.reports):
            logger.warning(
                "timed_out=%d transactions took longer than transaction.timeout_ms, and were written anew: "
                "lower transaction.chunk_rows, or raise it",
                timed_out,
            )
        for watcher in self._watchers:
            try:
                watcher.on_batch(batch)
            except Exception:
                logger.exception("watcher=%s failed at batch %d", type(watcher).__name__, batch.id)

    def say(self, line: str) -> None:
        """A line for people."""
        logger.info("%s", line)
