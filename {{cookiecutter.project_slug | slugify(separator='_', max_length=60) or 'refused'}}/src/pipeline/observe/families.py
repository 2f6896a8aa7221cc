"""Every metric of the pipeline by name, kind, unit, labels and meaning: what `docs/metrics.md` lists.

Guarantee: a family that is not in this table is not exposed. Names follow Prometheus: base units, counters end in
`_total`, labels have few values that are known beforehand, never an id.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pipeline.avro.limits import REASONS as CODEC_REASONS
from pipeline.lanes.judge import IDENTITY
from pipeline.lanes.outcome import Outcome
from pipeline.lanes.recent import Verdict
from pipeline.lanes.report import BUCKETS
from pipeline.lanes.shuffled import TIME

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

HITS = (Verdict.DUPLICATE, Verdict.STALE, Verdict.OLD_EPOCH, Verdict.CONFLICT)
REASONS = (IDENTITY, Verdict.STALE, Verdict.OLD_EPOCH, Verdict.CONFLICT, *CODEC_REASONS, TIME)
OUTCOMES = tuple(Outcome)
PHASES = ("fence", "recall", "judge", "produce", "commit")
# Labels whose values are few and known beforehand; `topic` is the source topic unless the metric says otherwise.
KNOWN_VALUES: dict[str, tuple[str, ...]] = {
    "verdict": HITS,
    "reason": REASONS,
    "outcome": OUTCOMES,
    "phase": PHASES,
}
BASE_UNITS = ("seconds", "bytes")


class Family(NamedTuple):
    """One metric as it is scraped."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def base_unit(self) -> str:
        """What OpenMetrics is told; it knows units only as the end of a name."""
        return self.unit if self.unit in BASE_UNITS and self.name.endswith(f"_{self.unit}") else ""

    def counter(self, registry: CollectorRegistry) -> Counter:
        """The metric, to be counted."""
        return Counter(self.name, self.meaning, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """The metric, to be set."""
        return Gauge(self.name, self.meaning, self.labels, registry=registry, unit=self.base_unit)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """The metric, to be observed."""
        return Histogram(self.name, self.meaning, self.labels, registry=registry, unit=self.base_unit, buckets=BUCKETS)

    def collected(self) -> Metric:
        """The metric as a collector of our own fills it, empty."""
        kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        empty: Metric = kind[self.kind](self.name, self.meaning, labels=self.labels, unit=self.base_unit)
        return empty


TOPIC = ("topic",)
LANE = ("topic", "partition")

READ = Family("pipeline_records_read_total", "counter", "records", LANE, "Source records that were settled.")
WRITTEN = Family(
    "pipeline_records_written_total", "counter", "records", LANE, "Output records, dead letters not included."
)
DROPPED = Family(
    "pipeline_records_dropped_total",
    "counter",
    "records",
    LANE,
    "Fresh records for which the transform made no output.",
)
LOST = Family(
    "pipeline_records_lost_total",
    "counter",
    "offsets",
    LANE,
    "Source offsets that retention deleted unread, accepted by an operator.",
)
DEDUP_HITS = Family(
    "pipeline_dedup_hits_total",
    "counter",
    "records",
    (*LANE, "verdict"),
    "Source records that the ledger judged to be other than fresh.",
)
DEAD_LETTERS = Family(
    "pipeline_dead_letters_total", "counter", "records", (*LANE, "reason"), "Records written to the dead-letter topic."
)
LANE_TRANSACTIONS = Family(
    "pipeline_lane_transactions_total",
    "counter",
    "transactions",
    LANE,
    "Committed transactions that moved the lane on, of all runs.",
)
NEXT_OFFSET = Family(
    "pipeline_lane_next_offset", "gauge", "offset", LANE, "Source offset at which the lane goes on; never falls."
)
LEDGER_BYTES = Family(
    "pipeline_ledger_bytes", "gauge", "bytes", LANE, "Cost of the lane's ledger, which dedup.ledger_bytes bounds."
)
LEDGER_PRODUCERS = Family(
    "pipeline_ledger_producers", "gauge", "producers", LANE, "Upstream producers that the lane's ledger remembers."
)
LATE_RECORDS = Family(
    "pipeline_late_records_total", "counter", "records", LANE, "Events at or before the watermark of their batch."
)
WATERMARK = Family(
    "pipeline_watermark_timestamp_seconds", "gauge", "seconds", LANE, "Watermark of the last batch; shuffled path only."
)
STATE_ROWS = Family(
    "pipeline_state_rows",
    "gauge",
    "rows",
    LANE,
    "Rows in Spark's state after the batch before; told by lane 0.",
)
STATE_BYTES = Family(
    "pipeline_state_bytes", "gauge", "bytes", LANE, "Memory of Spark's state after the batch before; told by lane 0."
)
LAG_RECORDS = Family(
    "pipeline_lag_records",
    "gauge",
    "offsets",
    LANE,
    "Offsets from the lane's next one to the last stable offset of its source partition; 0 when caught up.",
)
LAG_SECONDS = Family(
    "pipeline_lag_seconds",
    "gauge",
    "seconds",
    LANE,
    "Age of the oldest committed source record not yet settled, by its timestamp, 30 days at most; 0 when caught up.",
)
OPEN = Family(
    "pipeline_open_transaction_records",
    "gauge",
    "offsets",
    LANE,
    "Offsets that readers cannot see yet, behind an open transaction; topic: source, outputs, dead letters, lanes.",
)
SKIPPED = Family(
    "pipeline_records_skipped_total",
    "counter",
    "records",
    TOPIC,
    "Rows that Spark replayed and a lane had already settled.",
)
TRANSACTIONS = Family(
    "pipeline_transactions_total",
    "counter",
    "attempts",
    (*TOPIC, "outcome"),
    "Attempts of this process to write a chunk; unknown: the commit was not answered, the log told later.",
)
TRANSACTION_SECONDS = Family(
    "pipeline_transaction_duration_seconds",
    "histogram",
    "seconds",
    TOPIC,
    "Committed transactions, from fence to commit.",
)
PHASE_SECONDS = Family(
    "pipeline_transaction_phase_seconds",
    "histogram",
    "seconds",
    (*TOPIC, "phase"),
    "Committed transactions by phase; the commit latency is the phase commit.",
)
BATCH_SECONDS = Family(
    "pipeline_batch_duration_seconds",
    "histogram",
    "seconds",
    TOPIC,
    "Micro-batches and their sequels, all lanes from plan to report.",
)
LATENCY_SECONDS = Family(
    "pipeline_end_to_end_latency_seconds",
    "histogram",
    "seconds",
    TOPIC,
    "Every settled source record that has a timestamp, from it to the commit; 30 days at most.",
)
LAST_PROGRESS = Family(
    "pipeline_last_progress_timestamp_seconds",
    "gauge",
    "seconds",
    TOPIC,
    "Time of the last commit of any lane; until there is one, of taking the lanes over.",
)
LAST_POLL = Family(
    "pipeline_last_poll_timestamp_seconds",
    "gauge",
    "seconds",
    TOPIC,
    "Time of the last answer of the clusters; after a minute without, lag and open transactions are not exposed.",
)
RUN = Family("pipeline_run", "gauge", "number", TOPIC, "Number of this run; the newest run wins.")
INFO = Family(
    "pipeline_info",
    "gauge",
    "1",
    ("app", "delivery", "atomicity", "version", "python", "spark", "librdkafka"),
    "What is promised, by what versions; the value is always 1.",
)

FAMILIES = tuple(family for family in list(globals().values()) if isinstance(family, Family))


def markdown() -> str:
    """The table for the documentation."""
    rows = ["| metric | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {family.unit} | {labels} | {family.meaning} |")
    rows += ["", "| label | values |", "|---|---|"]
    rows += [f"| `{label}` | {', '.join(f'`{value}`' for value in values)} |" for label, values in KNOWN_VALUES.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(f"{markdown()}\n")
