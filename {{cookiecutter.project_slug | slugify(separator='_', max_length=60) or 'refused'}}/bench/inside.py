"""Jobs within this process, one Spark for all of them: for series of short runs, which a start each would drown.

The job is the pipeline's own (`flow.job.Job`), with the settings of `bench.peer`; only the end of Spark is put off. The
first batch of a run is left out: it holds the start of the query.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from pyspark.sql import SparkSession

from bench.peer import relay, sections
from bench.workload import create
from pipeline.flow.job import Job
from pipeline.lanes.provision import provision
from pipeline.local.node import free_ports
from pipeline.observe.progress import Observer
from pipeline.observe.setup import observing
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.stage import Stage
    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.progress import Batch
    from pipeline.sections import Delivery
    from pipeline.settings import Settings


class Lap(NamedTuple):
    """From the end of one batch to the end of the next."""

    records: int
    lanes: int
    seconds: float


@dataclass
class Laps:
    """A watcher that takes the time of each batch, with all that Spark does around it."""

    laps: list[Lap] = field(default_factory=list)
    _last: float | None = None

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
        """The query is not started yet."""

    def on_batch(self, batch: Batch) -> None:
        """Another batch is committed."""
        now = time.monotonic()
        commits = [commit for report in batch.reports for commit in report.commits]
        if self._last is not None:
            records = sum(commit.rows for commit in commits)
            self.laps.append(Lap(records, len(batch.reports), now - self._last))
        self._last = now

    @property
    def rate(self) -> float:
        """Records in a second."""
        return sum(lap.records for lap in self.laps) / sum(lap.seconds for lap in self.laps)


class Timed(Observer):
    """All that another observer does, and then the laps: its own time is part of a batch."""

    def __init__(self, other: Observer, laps: Laps) -> None:
        """Tell both."""
        super().__init__([laps])
        self._other = other

    def on_start(self, run: int, recalled: Mapping[int, Recalled], delivery: Delivery) -> None:
        """The lanes are taken over."""
        self._other.on_start(run, recalled, delivery)

    def on_batch(self, batch: Batch) -> None:
        """A batch is committed."""
        self._other.on_batch(batch)
        super().on_batch(batch)


@contextmanager
def spark_kept() -> Iterator[None]:
    """A job that ends leaves Spark for the next one; at the end of all it is stopped."""
    with patch.object(SparkSession, "stop", lambda _: None):
        yield
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()


def described(stage: Stage, topic: str, partitions: int, batch: int, **more: Mapping[str, Any]) -> Settings:
    """An app that relays the topic, in batches of so many records, into one of its own; it has no lanes yet."""
    out = stage.fresh(f"{topic}-out")
    create(stage.topics, out, partitions)
    given = {"BOOTSTRAP": stage.bootstrap, "IN_TOPIC": topic, "OUT_TOPIC": out, "PARTITIONS": str(partitions)}
    values = sections(given)
    values["source"]["max_offsets_per_trigger"] = batch
    values["spark"] = {"checkpoint": str(stage.folder / out / "checkpoint")}  # what is not the pipeline has one as well
    for section, part in more.items():
        values.setdefault(section, {}).update(part)
    return build(values)


def app(stage: Stage, topic: str, partitions: int, batch: int, **more: Mapping[str, Any]) -> Settings:
    """The same, provisioned."""
    settings = described(stage, topic, partitions, batch, **more)
    provision(settings, lambda _: None)
    return settings


def run(settings: Settings, *, metrics: bool = False) -> Laps:
    """Run a job until it has caught up; with `metrics` it is watched as `pipeline run` is, endpoint included."""
    laps = Laps()
    (out,) = settings.output.topics
    with ExitStack() as exits:
        observer = exits.enter_context(observing(settings)) if metrics else Observer()
        Job(settings, Timed(observer, laps), until_caught_up=True, transform=partial(relay, out)).run()
    return laps


def with_endpoint() -> dict[str, Any]:
    """Settings of an endpoint on a free port."""
    return {"port": free_ports(1)[0].client}
