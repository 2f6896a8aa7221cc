"""Lanes without Spark: a fresh app on a real broker, its rows, its tasks, and what a reader sees of its output."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import OffsetSpec
from tests.support.kafka import DEADLINE_SECONDS, QUIET, Record, create_topic, fresh, read_committed, wait_until
from tests.support.rows import columnar

from pipeline.errors import Unreachable
from pipeline.lanes.provision import provision
from pipeline.lanes.recall import Recalled, recall
from pipeline.lanes.record import LaneRecord, decode, lane_key
from pipeline.lanes.takeover import fence
from pipeline.lanes.task import LaneTask
from pipeline.lanes.topics import Topic, Topics
from pipeline.lanes.writer import LaneWriter
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from multiprocessing.context import ForkServerContext

    import pytest
    from tests.support.rows import Row

    from pipeline.lanes.report import LaneReport
    from pipeline.lanes.transaction import Headers, Sendable, Transaction

PRODUCER = b"upstream"
TIMESTAMP = 1_700_000_000_000


def settings_for(bootstrap: str, topic: str, /, **sections: Mapping[str, Any]) -> Settings:
    """Return the settings of a fresh app; `sections` go over the defaults, key by key."""
    app = fresh("app")
    values: dict[str, dict[str, Any]] = {
        "app": {"id": app},
        "source": {"bootstrap": bootstrap, "topic": topic},
        "output": {
            "topics": (f"{app}-out",),
            "dead_letter_topic": f"{app}-dead",
            "partitions": 1,
            "replication": 1,
        },
        # A writer that is killed leaves its transaction open for no longer than this, where nobody fences it.
        "transaction": {"timeout_ms": 10_000},
    }
    for section, given in sections.items():
        values.setdefault(section, {}).update(given)
    return build(values)


@dataclass(frozen=True)
class App:
    """A provisioned app, seen from outside."""

    settings: Settings
    source: Topic
    run: int = 0
    says: list[str] = field(default_factory=list)

    @property
    def out(self) -> str:
        """Its first output topic."""
        return self.settings.output.topics[0]

    def rows(self, first: int, until: int) -> list[Row]:
        """Return fresh rows, one output each: its value is the source offset."""
        return [row(offset, [self.output(offset)]) for offset in range(first, until)]

    def output(self, offset: int) -> Sendable:
        """Return what the user's function makes of a source record here."""
        return (self.out, b"key", b"%d" % offset, None)

    def task(self, first: int, until: int, *, partition: int = 0, **given: Any) -> LaneTask:
        """Return the task for a range of a lane; `given` are further fields of it."""
        task = LaneTask(self.settings, self.run, self.source.id, partition, first, until)
        return replace(task, **given)

    def write(self, first: int, until: int, rows: list[Row] | None = None, **given: Any) -> LaneReport:
        """Run one task over a range, all rows in one batch; by default the fresh rows of that range."""
        return run_task(self.task(first, until, **given), [self.rows(first, until) if rows is None else rows])

    def recalled(self, partition: int = 0) -> Recalled:
        """Read the lane record as the product does, once the markers of its last transaction are written."""
        self._settle(self.settings.lane_topic)
        return self.glance(partition)

    def glance(self, partition: int = 0) -> Recalled:
        """Read the lane record as the product does, without a fence: the last transaction may be missing."""
        key = lane_key(self.settings.app.id, self.source.name, partition)
        return recall(self.settings.output_bootstrap, self.settings.lane_topic, partition, key)

    def lane(self, partition: int = 0) -> LaneRecord:
        """Return the lane record as a plain `read_committed` reader finds it: the last in its partition."""
        return self.lane_records(partition)[-1]

    def lane_records(self, partition: int = 0) -> list[LaneRecord]:
        """Return every committed record of a lane, oldest first."""
        records = self._read(self.settings.lane_topic)
        return [decode(record.value or b"") for record in records if record.partition == partition]

    def written(self) -> list[int]:
        """Return the source offsets whose outputs a `read_committed` reader sees, in log order (one partition)."""
        records = self._read(self.out)
        return [int(record.value or b"") for record in records]

    def letters(self) -> list[Record]:
        """Return the dead letters that a `read_committed` reader sees."""
        return self._read(self.settings.output.dead_letter_topic)

    def _read(self, topic: str) -> list[Record]:
        return read_committed(self.settings.output_bootstrap, topic)

    def _settle(self, topic: str) -> None:
        """Wait until no transaction is open: a commit returns before its markers are written."""
        topics = Topics(self.settings.output_bootstrap)
        partitions = range(topics.one(topic, "topic").partitions)

        def settled() -> bool:
            try:
                stable = topics.offsets(topic, partitions, OffsetSpec.latest())
                return stable == topics.offsets(topic, partitions, OffsetSpec.latest(), committed=False)
            except Unreachable:  # a leader is being replaced
                return False

        wait_until(settled, what=f"no transaction is open in {topic}")


def provisioned(
    bootstrap: str,
    *,
    partitions: int = 1,
    out_config: Mapping[str, str] | None = None,
    **sections: Mapping[str, Any],
) -> App:
    """Create a source topic and an app on it, provisioned; `out_config` is the configuration of its output topic."""
    topic = create_topic(bootstrap, fresh("source"), partitions)
    settings = settings_for(bootstrap, topic, **sections)
    if out_config:
        create_topic(settings.output_bootstrap, settings.output.topics[0], config=out_config)
    says: list[str] = []
    provision(settings, says.append)
    return App(settings, Topics(bootstrap).one(topic, "source topic"), says=says)


def row(  # noqa: PLR0913  a row has as many parts
    offset: int,
    outputs: list[Sendable],
    *,
    seq: int | None = None,
    producer_id: bytes | None = PRODUCER,
    digest: int = 0,
    error: str | None = None,
) -> Row:
    """Return a row whose identity is (upstream, transaction 0, seq); seq is the offset unless given."""
    number = b"%d" % (offset if seq is None else seq)
    return (offset, TIMESTAMP + offset, producer_id, b"0", b"0", number, False, digest, error, outputs)


def run_task(task: LaneTask, batches: Iterable[list[Row]]) -> LaneReport:
    """Run the lane writer over one range, as a Spark task does."""
    writer = LaneWriter(task)
    writer.write(columnar(batch) for batch in batches)
    return writer.report


def in_batches(rows: list[Row], size: int) -> Iterable[list[Row]]:
    """Cut rows into batches of at most `size`, as Arrow batches come."""
    return (rows[at : at + size] for at in range(0, len(rows), size))


def fill(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None, Headers]],
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write (key, value, headers) to partition 0 of a source topic, in order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET, **(config or {})})
    failures: list[str] = []
    for key, value, headers in records:
        producer.produce(
            topic,
            value,
            key,
            0,
            headers=headers,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
    left = producer.flush(DEADLINE_SECONDS)
    assert not left
    assert not failures


def write_on(app: App, until: int, step: int) -> int:
    """Write a lane to `until` in ranges of `step`, from wherever it stands; return how many transactions failed."""
    failed = 0
    while (first := decode(app.glance().value).next_offset) < until:
        failed += sum(app.write(first, min(first + step, until)).failures.values())
    return failed


def processes() -> ForkServerContext:
    """Return a maker of processes that are forked at once, from one in which no client was ever created."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.mutants.preload", __name__])
    return context


def leave_open(app: App, value: bytes = b"never committed", partition: int = 0) -> Transaction:
    """Do what a writer does that is killed before its commit: its lane record is in the log, its transaction open."""
    transaction = fence(app.settings, partition)
    end = app.glance(partition).end
    transaction.begin()
    transaction.send_all([(app.out, b"key", b"-1", None)])
    key = lane_key(app.settings.app.id, app.source.name, partition)
    transaction.put_lane_record(app.settings.lane_topic, partition, key, value)
    transaction.flush_and_compare(end)
    return transaction


def spy_on_producers(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> type[Producer]:
    """Note every transactional call of every producer, in order: init, begin, produce, flush, commit, abort.

    Of init it notes those that held: one that takes longer is called anew.
    """

    class Spy(Producer):  # type: ignore[misc]
        def init_transactions(self, *args: Any) -> None:
            super().init_transactions(*args)
            calls.append("init")

        def begin_transaction(self) -> None:
            calls.append("begin")
            super().begin_transaction()

        def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
            calls.append(f"produce {topic}")
            super().produce(topic, *args, **kwargs)

        def flush(self, *args: Any) -> int:
            calls.append("flush")
            left: int = super().flush(*args)
            return left

        def commit_transaction(self, *args: Any) -> None:
            calls.append("commit")
            super().commit_transaction(*args)

        def abort_transaction(self, *args: Any) -> None:
            calls.append("abort")
            super().abort_transaction(*args)

    monkeypatch.setattr("pipeline.lanes.transaction.Producer", Spy)
    return Spy
