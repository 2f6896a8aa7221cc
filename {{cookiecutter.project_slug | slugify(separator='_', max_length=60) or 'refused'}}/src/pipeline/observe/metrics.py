"""The metrics of a run: what the lanes, the transactions and the poller say, in one registry.

Guarantee: they tell the truth. Figures of a lane are set from its committed record, never added and never lowered, so
they count nothing twice and go on after a crash; all others are of committed transactions of this process. A scrape
reads memory only: it asks no cluster, takes no lock of the job's, and works while a batch runs.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import confluent_kafka
from prometheus_client import Info, disable_created_metrics

from pipeline import __version__
from pipeline.lanes.record import encode
from pipeline.observe import families as known
from pipeline.observe.collectors import LagFigures, LaneFigures, Latency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.progress import Batch
    from pipeline.settings import Settings


@dataclass(frozen=True)
class Metrics:
    """All metrics of one run; a watcher."""

    topic: str
    lanes: LaneFigures
    lag: LagFigures
    latency: Latency
    skipped: Counter
    transactions: Counter
    transaction_seconds: Histogram
    phase_seconds: Histogram
    batch_seconds: Histogram
    run: Gauge

    @classmethod
    def build(cls, settings: Settings, registry: CollectorRegistry) -> Metrics:
        """Register every family; counters of known labels begin at 0, or their first increase would be invisible."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        topic = settings.source.topic
        lanes = LaneFigures(topic)
        metrics = cls(
            topic,
            lanes,
            LagFigures(topic, lanes),
            Latency(topic),
            known.SKIPPED.counter(registry),
            known.TRANSACTIONS.counter(registry),
            known.TRANSACTION_SECONDS.histogram(registry),
            known.PHASE_SECONDS.histogram(registry),
            known.BATCH_SECONDS.histogram(registry),
            known.RUN.gauge(registry),
        )
        for collector in (metrics.lanes, metrics.lag, metrics.latency):
            registry.register(collector)
        for family in (metrics.skipped, metrics.transaction_seconds, metrics.batch_seconds):
            family.labels(topic)
        for outcome in known.OUTCOMES:
            metrics.transactions.labels(topic, outcome)
        for phase in known.PHASES:
            metrics.phase_seconds.labels(topic, phase)
        Info("pipeline", known.INFO.meaning, registry=registry).info(versions(settings))
        return metrics

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
        """The lanes are this run's: what they say is committed."""
        self.run.labels(self.topic).set(run)
        self.lanes.set(lanes, {partition: encode(lane) for partition, lane in lanes.items()}, time.time())

    def on_batch(self, batch: Batch) -> None:
        """Set what the lanes say now, and add what this process did."""
        commits = [commit for report in batch.reports for commit in report.commits]
        records = {report.partition: report.record for report in batch.reports}
        self.lanes.set(batch.lanes, records, max((commit.committed_ms / 1000 for commit in commits), default=0.0))
        self.batch_seconds.labels(self.topic).observe(batch.seconds)
        for report in batch.reports:
            self.skipped.labels(self.topic).inc(report.skipped)
            for outcome, count in report.outcomes.items():
                self.transactions.labels(self.topic, outcome).inc(count)
        for commit in commits:
            self.transaction_seconds.labels(self.topic).observe(sum(commit.seconds.values()))
            for phase, seconds in commit.seconds.items():
                self.phase_seconds.labels(self.topic, phase).observe(seconds)
            self.latency.add(commit.ages, commit.age_seconds)


def versions(settings: Settings) -> dict[str, str]:
    """What runs here, and what it promises."""
    return {
        "app": settings.app.id,
        "delivery": settings.delivery.semantics,
        "atomicity": settings.delivery.atomicity,
        "version": __version__,
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "librdkafka": confluent_kafka.libversion()[0],
    }
