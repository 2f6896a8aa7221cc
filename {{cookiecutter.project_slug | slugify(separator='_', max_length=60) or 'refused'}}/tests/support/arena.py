"""A job that is hurt on purpose, started again when it ends, and audited: what every fault case stands on."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka.admin import OffsetSpec
from tests.support.armed import Faults
from tests.support.job import new_app, payments
from tests.support.kafka import LOOK_SECONDS, fresh
from tests.support.segments import Visible, visible

from pipeline.errors import PipelineError
from pipeline.lanes.topics import Topics
from pipeline.local.lookout import Lookout
from pipeline.local.node import free_ports
from pipeline.local.processes import signal_all, tree
from pipeline.observe.families import HITS
from pipeline.observe.scrape import scrape
from pipeline.observe.watch import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.job import App, Transform
    from tests.support.running import Running

    from pipeline.lanes.record import LaneRecord
    from pipeline.local.broker import Broker
    from pipeline.settings import Settings

# What is promised wherever recovery needs no help: seconds from the end of a fault to a job that has caught up.
RECOVERY_SECONDS = 60.0
# No test gives a job up while a busy machine still starts it: what it took is for the report to judge.
PATIENCE_SECONDS = 180.0
TIMEOUT_MS = 5_000
# What must be scraped of a lane, by its committed record.
TRUTHS: dict[str, Callable[[LaneRecord], float]] = {
    "pipeline_lane_next_offset": lambda lane: lane.next_offset,
    "pipeline_records_read_total": lambda lane: lane.counters.read,
    "pipeline_records_written_total": lambda lane: lane.counters.written,
    "pipeline_records_dropped_total": lambda lane: lane.counters.dropped,
    "pipeline_dead_letters_total": lambda lane: sum(lane.counters.dead_letters.values()),
    "pipeline_dedup_hits_total": lambda lane: sum(lane.counters.verdicts.get(hit, 0) for hit in HITS),
    "pipeline_lane_transactions_total": lambda lane: lane.counters.transactions,
}


@dataclass
class Evidence:
    """What a fault case leaves for the report."""

    seed: int = 0
    restarts: int = 0
    recovery: float | None = None


@dataclass
class Arena:
    """A job in a process of its own, through whatever happens to it; `app` speaks to the broker directly."""

    app: App
    bootstrap: str
    faults: Faults
    data: Path | None = None  # where the broker keeps its partitions, if it has only one node
    evidence: Evidence = field(default_factory=Evidence)
    exits: list[int] = field(default_factory=list)
    broken: bool = False  # by a case that failed: of no use for another one
    environ: dict[str, str] = field(default_factory=dict)  # more variables for the job's process
    transform: Callable[[Settings], Transform] = payments
    _running: Running | None = None

    def __enter__(self) -> Self:
        """For `with`."""
        self._stack = ExitStack()
        self._lookout = self._stack.enter_context(Lookout(self.app.settings))
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs."""
        if self._running is not None:
            self._running.__exit__()
        self._stack.close()

    @property
    def running(self) -> Running:
        """The job, as it runs now; started if it does not."""
        if self._running is None:
            theirs = self.app.with_settings(source={"bootstrap": self.bootstrap})
            self._running = theirs.start(self.transform, {**self.faults.environ, **self.environ})
        return self._running

    def kill(self) -> None:
        """Kill the job with all that came of it."""
        signal_all(tree(self.running.pid), signal.SIGKILL)

    def work(self, seed: int, count: int = 1_000) -> None:
        """Send payments with all that goes wrong upstream, and transactions that abort."""
        self.app.send(count, seed=seed)
        self.app.abort()
        self.app.send(count // 4, seed=seed + 500_000)

    def watch(self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS, what: str = "") -> None:
        """Wait for a condition; whenever the job ends, note how, and start it again, as a supervisor does."""
        until = time.monotonic() + seconds
        while not condition():
            code = self.running.poll()
            if code is not None:
                self.exits.append(code)
                self.evidence.restarts += 1
                self.running.__exit__()
                self._running = None
            assert time.monotonic() < until, f"not within {seconds} s: {what}; ends: {self.exits}\n{self.running.log}"
            time.sleep(LOOK_SECONDS)

    def caught_up(self) -> bool:
        """Tell whether the lanes have passed all that the source holds."""
        app = self.app
        ends = Topics(app.bootstrap).offsets(app.topic, range(app.partitions), OffsetSpec.latest())
        return self._lookout.progress() >= sum(ends.values())

    def settle(self) -> None:
        """Wait until the job has caught up by itself, and note how long it took."""
        healed = time.monotonic()
        self.watch(self.caught_up, what="the job has caught up")
        self.evidence.recovery = time.monotonic() - healed

    def assert_recovered(self) -> None:
        """Demand that the job catches up by itself, and an exact output; how long it took is for the report."""
        self.settle()
        self.assert_exact()
        self.broken = False

    def assert_exact(self) -> None:
        """Demand an exact output, metrics that tell the truth, and no transaction left open."""
        self.watch(self.metrics_are_true, RECOVERY_SECONDS, "the scraped figures are those of the lane records")
        self.app.assert_exact()
        if self.data is not None:
            self.assert_files_agree(self.data)

    def assert_files_agree(self, data: Path) -> None:
        """Demand that the broker's files show what readers see, and no transaction that was left open."""
        settings = self.app.settings
        for topic in (*settings.output.topics, settings.output.dead_letter_topic):
            seen: dict[int, set[int]] = {}
            for record in self.app.written(topic):
                seen.setdefault(record.partition, set()).add(record.offset)
            for folder in data.glob(f"{topic}-*"):
                partition = int(folder.name.rpartition("-")[2])
                assert visible(folder) == Visible(seen.get(partition, set()), set()), folder.name

    def metrics_are_true(self) -> bool:
        """Compare what is scraped with the committed lane records, which the audit in turn holds against the topics."""
        lanes = self._lookout.lanes()
        try:
            shown = scrape(endpoint_of(self.app.settings))
        except PipelineError:  # the job is being started
            return False
        told = {name: shown.lanes(name) for name in TRUTHS}
        return told == {
            name: {partition: truth(lane) for partition, lane in lanes.items()} for name, truth in TRUTHS.items()
        }


Kind = TypeVar("Kind", bound=Arena)


@contextmanager
def shared(make: Callable[[], Kind]) -> Iterator[Callable[[], Kind]]:
    """Give what gives the arena of many cases: the same one, until a case leaves it broken."""
    kept: list[Kind] = []

    def give() -> Kind:
        if kept and kept[-1].broken:
            kept.pop().__exit__()
        if not kept:
            kept.append(make().__enter__())
        return kept[-1]

    yield give
    for used in kept:
        used.__exit__()


def arena(
    broker: Broker, folder: Path, *, through: str | None = None, partitions: int = 4, **sections: Mapping[str, Any]
) -> Arena:
    """Make an app and an arena for it; `through` is the address that the job is given, if it is another one."""
    bootstrap = broker.bootstrap
    given: dict[str, dict[str, Any]] = {
        "source": {"max_offsets_per_trigger": 400},
        "output": {"partitions": 3},
        "transaction": {"timeout_ms": TIMEOUT_MS, "chunk_seconds": 2.0},
        "metrics": {"port": free_ports(1)[0].client},
    }
    for section, values in sections.items():
        given.setdefault(section, {}).update(values)
    place = folder / fresh("arena")
    place.mkdir()
    app = new_app(bootstrap, place, partitions=partitions, provisioned=True, **given)
    return Arena(app, through or bootstrap, Faults(place), broker.data() if len(broker.pids) == 1 else None)
