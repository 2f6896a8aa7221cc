"""Jobs on the shuffled path in tests: apps, events at given times, windows of their own, and their audit."""

from __future__ import annotations

import io
import json
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import fastavro
from confluent_kafka import Producer
from pyspark.sql import functions as f
from tests.support.job import App, new_app, spark_kept
from tests.support.kafka import DEADLINE_SECONDS, QUIET
from tests.support.scoring import windows as example

from pipeline.flow.outputs import emit, output, record
from pipeline.flow.recomputed import recomputed
from pipeline.flow.spans import span, spans
from pipeline.flow.spans import tumbling as minutes
from pipeline.lanes.provision import provision
from pipeline.lanes.record import decode
from pipeline.local.malformed import stamp
from pipeline.local.values import ENCODE
from pipeline.observe.audit.shuffled import audit_shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame
    from tests.support.running import Running

    from pipeline.flow.job import Job
    from pipeline.flow.outputs import Output
    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.audit import AuditResult
    from pipeline.observe.progress import Batch
    from pipeline.settings import Settings

    Function = Callable[[DataFrame], DataFrame]

# Kafka's time of every event: none of them is ahead of it. A broker takes none of its own future, and forgets the past.
KAFKA_MS = time.time_ns() // 1_000_000
MINUTE = 60_000
SCHEMAS = Path(__file__).parents[2] / "schemas"


def tumbling(settings: Settings) -> Function:
    """Return windows of one minute by account: the least that needs state."""
    totals = settings.output.topics[0]

    def windows(events: DataFrame) -> DataFrame:
        counted = f.count("*").alias("payments"), f.sum("amount").cast("decimal(18,2)").alias("amount")
        grouped = spans(events, "at", minutes("minute", 60)).groupBy("account", *span()).agg(*counted)
        found = grouped.select("account", "span.*", "payments", "amount")
        value = record("account", "start", "end", "payments", "amount")
        outputs = emit(output(totals, key="account", value=value))
        return found.select(outputs.alias("outputs"), f.col("end").alias("time"))

    return windows


def scoring(settings: Settings) -> Function:
    """Return the windows that the project began with, with topics of the app."""

    def renamed(topic: str, **given: Any) -> Output:
        return output(f"{settings.app.id}-{topic}", **given)

    def windows(events: DataFrame) -> DataFrame:
        with patch("tests.support.scoring.output", renamed):
            return example(events)

    return windows


def copied(settings: Settings) -> Function:
    """Return a transform that writes each event once, but none to be dropped: behind `window` dedup."""
    totals = settings.output.topics[0]

    def transform(events: DataFrame) -> DataFrame:
        made = emit(output(totals, key="account", value=record("id", "account")))
        return events.withColumn("outputs", f.when(~f.col("id").startswith("dropped"), made))

    return transform


@dataclass(frozen=True)
class WindowedApp(App):
    """An app on the shuffled path; `function` makes its windows, or its transform."""

    function: Callable[[Settings], Function] = tumbling

    def with_settings(self, **sections: Mapping[str, Any]) -> WindowedApp:
        """Return the same app with other settings."""
        return WindowedApp(super().with_settings(**sections).settings, self.folder, self.function)

    def pay_at(self, rows: Iterable[tuple[int, str, str, int]], kafka_ms: int = KAFKA_MS) -> None:
        """Send (partition, id, account, event time in ms) as payments of 1.10."""
        client = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        refused: list[str] = []
        for number, (partition, name, account, at) in enumerate(rows):
            encode = ENCODE[self.settings.codec.input]
            client.produce(
                self.topic,
                encode(name.encode(), account.encode(), 110, at),
                account.encode(),
                partition,
                timestamp=kafka_ms,
                headers=stamp(b"till", 0, 0, number),
                on_delivery=lambda error, _: refused.append(str(error)) if error else None,
            )
        assert client.flush(DEADLINE_SECONDS) == 0
        assert not refused

    def go(self, then: Callable[[Job, Batch], object] = lambda _job, _batch: None) -> Any:
        """Run the job in this process until it has caught up."""
        return self.run(then, transform=self.function(self.settings))

    def start(
        self, transform: Callable[[Settings], Function] | None = None, environ: Mapping[str, str] | None = None
    ) -> Running:
        """Run the job in a process of its own."""
        return super().start(transform or self.function, environ)

    def late_ones(self) -> int:
        """Return how many late events the lanes have counted."""
        return sum(lane.counters.verdicts.get("late", 0) for lane in self.lanes())

    def lanes(self) -> list[LaneRecord]:
        """Return the record of each lane."""
        newest = {one.partition: one.value or b"" for one in self.written(self.settings.lane_topic)}
        return [decode(newest[lane]) for lane in sorted(newest)]

    def audit(self, *, accept_repeats: bool = False) -> AuditResult:
        """Compute everything anew from the source topic, and compare."""
        recompute = partial(recomputed, self.settings, function=self.function(self.settings))
        with spark_kept():
            return audit_shuffled(self.settings, recompute, patience=1.0, accept_repeats=accept_repeats)

    def values(self, topic: int = 0) -> list[dict[str, Any]]:
        """Return what a reader finds in an output topic."""
        name = self.settings.output.topics[topic]
        found = [one.value or b"" for one in self.written(name)]
        if self.settings.codec.output == "json":
            return [json.loads(value) for value in found]
        schema = fastavro.schema.load_schema(self.settings.codec.output_schema_files.format(topic=name))
        return [fastavro.schemaless_reader(io.BytesIO(value), schema, None) for value in found]

    def late(self) -> list[tuple[int, int]]:
        """Return the places in the source of what stands in the late topic."""
        found = [dict(one.headers) for one in self.written(self.settings.windows.late_topic)]
        return sorted(
            (int(one["dead-letter-partition"] or b""), int(one["dead-letter-offset"] or b"")) for one in found
        )


def windowed_app(
    bootstrap: str,
    folder: Path,
    *,
    partitions: int = 2,
    function: Callable[[Settings], Function] = tumbling,
    **sections: Mapping[str, Any],
) -> WindowedApp:
    """Create a source topic and an app of the windows path on it; `sections` go over its settings, key by key."""
    made = new_app(bootstrap, folder, partitions=partitions, provisioned=False)
    name = made.settings.app.id
    given: dict[str, dict[str, Any]] = {
        "flow": {"path": "windows"},
        "windows": {"watermark_seconds": 60, "late_topic": f"{name}-late"},
        "output": {"topics": (f"{name}-totals", f"{name}-verdicts", f"{name}-late")},
    }
    for section, values in sections.items():
        given.setdefault(section, {}).update(values)
    for topic in ("totals", "verdicts"):  # the project's own schemas, under the names that the topics have here
        shutil.copy(SCHEMAS / f"{topic}.avsc", folder / f"{name}-{topic}.avsc")
    app = WindowedApp(made.settings, folder, function).with_settings(**given)
    provision(app.settings, lambda _: None)
    return app
