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
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka
from prometheus_client import Info, disable_created_metrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from pipeline import __version__
from pipeline.lanes.cost import cost
from pipeline.lanes.report import BUCKETS, LONGEST_SECONDS
from pipeline.lanes.shuffled import LATE
from pipeline.observe import families as known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics_core import Metric

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.families import Family
    from pipeline.observe.lag import Polled
    from pipeline.observe.progress import Batch
    from pipeline.settings import Settings

# Offsets that the clusters told longer ago say nothing of now; a single poll without an answer leaves no hole.
STALE_SECONDS = 60.0

# What a lane's record says, by the value of the label beside topic and partition, if there is one.
Reading = dict[str, float]


def state_of(lane: LaneRecord, name: str) -> Reading:
    """What Spark's state held, of the one lane that tells it for all."""
    return {} if lane.token is None or lane.partition else {"": getattr(lane.token, name)}


LANE_FIGURES: tuple[tuple[Family, Callable[[LaneRecord], Reading]], ...] = (
    (known.READ, lambda lane: {"": lane.counters.read}),
    (known.WRITTEN, lambda lane: {"": lane.counters.written}),
    (known.DROPPED, lambda lane: {"": lane.counters.dropped}),
    (known.LOST, lambda lane: {"": lane.counters.lost}),
    (known.DEDUP_HITS, lambda lane: {hit: lane.counters.verdicts.get(hit, 0) for hit in known.HITS}),
    (known.DEAD_LETTERS, lambda lane: {why: lane.counters.dead_letters.get(why, 0) for why in known.REASONS}),
    (known.LANE_TRANSACTIONS, lambda lane: {"": lane.counters.transactions}),
    (known.NEXT_OFFSET, lambda lane: {"": lane.next_offset}),
    (known.LEDGER_BYTES, lambda lane: {"": cost(lane.producers)}),
    (known.LEDGER_PRODUCERS, lambda lane: {"": len(lane.producers)}),
    (known.LATE_RECORDS, lambda lane: {"": lane.counters.verdicts.get(LATE, 0)}),
    (known.WATERMARK, lambda lane: {"": lane.token.watermark_ms / 1000} if lane.token is not None else {}),
    (known.STATE_ROWS, lambda lane: state_of(lane, "state_rows")),
    (known.STATE_BYTES, lambda lane: state_of(lane, "state_bytes")),
)


class LaneFigures(Collector):
    """The newest figures of every lane; replaced as a whole, never changed: a scrape may be reading them."""

    def __init__(self, topic: str) -> None:
        """No lane is known before it is taken over."""
        self._topic = topic
        self._figures: dict[int, list[Reading]] = {}
        self.next_offsets: dict[int, int] = {}
        self.progressed_at = 0.0

    def set(self, lanes: Mapping[int, LaneRecord], progressed_at: float) -> None:
        """Take over what newer records say; an older one changes nothing."""
        newer = {
            partition: lane
            for partition, lane in lanes.items()
            if lane.next_offset >= self.next_offsets.get(partition, 0)
        }
        figures = {partition: [read(lane) for _, read in LANE_FIGURES] for partition, lane in newer.items()}
        self._figures = {**self._figures, **figures}
        self.next_offsets = {**self.next_offsets, **{partition: lane.next_offset for partition, lane in newer.items()}}
        self.progressed_at = max(self.progressed_at, progressed_at)

    def collect(self) -> Iterator[Metric]:
        """For a scrape."""
        lanes = sorted(self._figures.items())
        for number, (family, _) in enumerate(LANE_FIGURES):
            samples = [
                ([self._topic, str(partition), *([label] if label else [])], value)
                for partition, readings in lanes
                for label, value in readings[number].items()
            ]
            yield filled(family, samples)
        yield filled(known.LAST_PROGRESS, [([self._topic], self.progressed_at)] if self.progressed_at else [])


class LagFigures(Collector):
    """Lag and open transactions: what the last poll saw against the lanes of now."""

    def __init__(self, topic: str, lanes: LaneFigures) -> None:
        """The poller sets `polled`."""
        self._topic = topic
        self._lanes = lanes
        self.polled: Polled | None = None

    def records(self, polled: Polled) -> dict[int, int]:
        """Lag by lane; a lane may have passed what the poll saw."""
        offsets = self._lanes.next_offsets.items()
        stable = polled.stable
        return {number: max(stable[number] - offset, 0) for number, offset in offsets if number in stable}

    def collect(self) -> Iterator[Metric]:
        """For a scrape."""
        polled, now = self.polled, time.time()
        yield filled(known.LAST_POLL, [([self._topic], polled.at)] if polled is not None else [])
        fresh = polled is not None and now - polled.at < STALE_SECONDS
        lags = self.records(polled) if polled is not None and fresh else {}
        waiting = polled.oldest if polled is not None else {}
        seconds = {
            number: min(max(now - waiting[number], 0.0), LONGEST_SECONDS) if lag else 0.0
            for number, lag in lags.items()
            if not lag or number in waiting
        }
        yield filled(known.LAG_RECORDS, [([self._topic, str(number)], lag) for number, lag in lags.items()])
        yield filled(known.LAG_SECONDS, [([self._topic, str(number)], age) for number, age in seconds.items()])
        opened = polled.open if polled is not None and fresh else {}
        yield filled(known.OPEN, [([topic, str(number)], count) for (topic, number), count in sorted(opened.items())])


class Latency(Collector):
    """A histogram that is given whole counts: the tasks have sorted their rows into the buckets."""

    def __init__(self, topic: str) -> None:
        """Empty."""
        self._topic = topic
        self._state: tuple[list[int], float] = ([0] * (len(BUCKETS) + 1), 0.0)

    def add(self, ages: Iterable[int], seconds: float) -> None:
        """Add the rows of one commit; counts and sum are replaced together."""
        counts, total = self._state
        self._state = ([old + new for old, new in zip(counts, ages, strict=True)], total + seconds)

    def collect(self) -> Iterator[Metric]:
        """For a scrape."""
        counts, total = self._state
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        metric: Any = known.LATENCY_SECONDS.collected()
        metric.add_metric([self._topic], list(zip(bounds, accumulate(counts), strict=True)), total)
        yield metric


def filled(family: Family, samples: Iterable[tuple[list[str], float]]) -> Metric:
    """A family with its samples: values of the labels, and the number."""
    metric: Any = family.collected()
    for labels, value in samples:
        metric.add_metric(labels, value)
    return cast("Metric", metric)


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
        self.lanes.set(lanes, time.time())

    def on_batch(self, batch: Batch) -> None:
        """Set what the lanes say now, and add what this process did."""
        commits = [commit for report in batch.reports for commit in report.commits]
        self.lanes.set(batch.lanes, max((commit.committed_ms / 1000 for commit in commits), default=0.0))
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
