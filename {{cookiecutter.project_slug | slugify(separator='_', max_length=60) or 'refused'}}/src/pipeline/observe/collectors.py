"""What a scrape collects: the figures of lanes, of lag, and of latency, each set as a whole and read from memory.

Guarantee: a scrape sees figures that belong together, while a batch runs and others replace them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from pipeline.lanes.cost import cost
from pipeline.lanes.record import LaneRecord, decode
from pipeline.lanes.report import BUCKETS, LONGEST_SECONDS
from pipeline.lanes.shuffled import LATE
from pipeline.observe import families as known
from pipeline.observe.families import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from pipeline.observe.lag import Polled

# Offsets that the clusters told longer ago say nothing of now; a single poll without an answer leaves no hole.
STALE_SECONDS = 60.0

# What a lane's record says, by the value of the label beside topic and partition, if there is one.
Reading = dict[str, float]
Figures = tuple[tuple[Family, Callable[[LaneRecord], Reading]], ...]


def state_of(lane: LaneRecord, name: str) -> Reading:
    """What Spark's state held, of the one lane that tells it for all."""
    return {} if lane.token is None or lane.partition else {"": getattr(lane.token, name)}


LANE_FIGURES: Figures = (
    (known.READ, lambda lane: {"": lane.counters.read}),
    (known.WRITTEN, lambda lane: {"": lane.counters.written}),
    (known.DROPPED, lambda lane: {"": lane.counters.dropped}),
    (known.LOST, lambda lane: {"": lane.counters.lost}),
    (known.DEDUP_HITS, lambda lane: {hit: lane.counters.verdicts.get(hit, 0) for hit in known.HITS}),
    (known.DEAD_LETTERS, lambda lane: {why: lane.counters.dead_letters.get(why, 0) for why in known.REASONS}),
    (known.LANE_TRANSACTIONS, lambda lane: {"": lane.counters.transactions}),
    (known.NEXT_OFFSET, lambda lane: {"": lane.next_offset}),
    (known.LATE_RECORDS, lambda lane: {"": lane.counters.verdicts.get(LATE, 0)}),
    (known.WATERMARK, lambda lane: {"": lane.token.watermark_ms / 1000} if lane.token is not None else {}),
    (known.STATE_ROWS, lambda lane: state_of(lane, "state_rows")),
    (known.STATE_BYTES, lambda lane: state_of(lane, "state_bytes")),
)
# What its ledger says, which takes as long to read as a lane to write: it is read for a scrape, not for each batch.
LEDGER_FIGURES: Figures = (
    (known.LEDGER_BYTES, lambda lane: {"": cost(lane.producers)}),
    (known.LEDGER_PRODUCERS, lambda lane: {"": len(lane.producers)}),
)


class LaneFigures(Collector):
    """The newest figures of every lane; replaced as a whole, never changed: a scrape may be reading them."""

    def __init__(self, topic: str) -> None:
        """No lane is known before it is taken over."""
        self._topic = topic
        self._figures: dict[int, list[Reading]] = {}
        self._records: dict[int, bytes] = {}  # whose ledgers are read when they are asked for, and then kept
        self._ledgers: dict[int, tuple[bytes, list[Reading]]] = {}
        self.next_offsets: dict[int, int] = {}
        self.progressed_at = 0.0

    def set(self, lanes: Mapping[int, LaneRecord], records: Mapping[int, bytes], progressed_at: float) -> None:
        """Take over what newer records say; an older one changes nothing."""
        newer = {
            partition: lane
            for partition, lane in lanes.items()
            if lane.next_offset >= self.next_offsets.get(partition, 0)
        }
        figures = {partition: [read(lane) for _, read in LANE_FIGURES] for partition, lane in newer.items()}
        self._figures = {**self._figures, **figures}
        self._records = {**self._records, **{partition: records[partition] for partition in newer}}
        self.next_offsets = {**self.next_offsets, **{partition: lane.next_offset for partition, lane in newer.items()}}
        self.progressed_at = max(self.progressed_at, progressed_at)

    def collect(self) -> Iterator[Metric]:
        """For a scrape."""
        yield from self._filled(LANE_FIGURES, self._figures)
        yield from self._filled(LEDGER_FIGURES, self._ledger_figures())
        yield filled(known.LAST_PROGRESS, [([self._topic], self.progressed_at)] if self.progressed_at else [])

    def _filled(self, figures: Figures, lanes: Mapping[int, list[Reading]]) -> Iterator[Metric]:
        for number, (family, _) in enumerate(figures):
            samples = [
                ([self._topic, str(partition), *([label] if label else [])], value)
                for partition, readings in sorted(lanes.items())
                for label, value in readings[number].items()
            ]
            yield filled(family, samples)

    def _ledger_figures(self) -> dict[int, list[Reading]]:
        found = {}
        for partition, data in self._records.items():
            known_data, readings = self._ledgers.get(partition, (b"", []))
            if known_data is not data:
                lane = decode(data)
                readings = [read(lane) for _, read in LEDGER_FIGURES]
            found[partition] = data, readings
        self._ledgers = found
        return {partition: readings for partition, (_, readings) in found.items()}


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
