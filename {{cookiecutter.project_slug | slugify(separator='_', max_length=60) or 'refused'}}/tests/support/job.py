"""Whole jobs in tests: an app on a real broker, run in this process or in one of its own, watched, and audited.

Spark is started once for all jobs of a test process: a job that ends leaves it running for the next one. The transform
is the tests' own, with topics of its app, so that neither depends on what a user makes of the project.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, struct, to_json, udf
from tests.support.kafka import DEADLINE_SECONDS, QUIET, Record, create_topic, fresh, read_committed, wait_until
from tests.support.running import JOB_SECONDS, Running

from pipeline.flow.expected import expected_outputs
from pipeline.flow.job import Job
from pipeline.flow.outputs import emit, output
from pipeline.flow.reference import enrich
from pipeline.flow.shutdown import open_partitions
from pipeline.lanes.provision import provision
from pipeline.lanes.topics import Topics
from pipeline.local.events import send
from pipeline.local.malformed import stamp
from pipeline.observe.audit import audit, ranges
from pipeline.observe.lag import GroupProgress
from pipeline.observe.progress import Observer
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.audit import AuditResult
    from pipeline.observe.progress import Batch

    Transform = Callable[[DataFrame], DataFrame]

# What supervisors usually grant between SIGTERM and SIGKILL.
STOP_SECONDS = 30.0
ALERT_ABOVE = 10_000
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "account", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "currency", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def payment(name: bytes) -> bytes:
    """Return the value of a plain payment."""
    return b'{"id":"%s","account":"a","amount":1.10,"currency":"EUR","at":1}' % name


def payments(settings: Settings) -> Transform:
    """Return a transform of the payments workload: some events have no output, some two."""
    receipts, alerts = settings.output.topics

    def transform(events: DataFrame) -> DataFrame:
        value = to_json(struct("id", "amount", "currency", "at"))
        receipt = output(receipts, key="account", value=value).when(col("amount") != 0)
        alert = output(alerts, key="account", value="id", headers={"currency": "currency"})
        return events.withColumn("outputs", emit(receipt, alert.when(col("amount") > ALERT_ABOVE)))

    return transform


def enriched(settings: Settings) -> Transform:
    """Return a transform that writes what the reference table says of an account."""
    receipts, _ = settings.output.topics

    def transform(events: DataFrame) -> DataFrame:
        value = to_json(struct("id", col("reference.tier").alias("tier")))
        known = enrich(events, on="account")
        return known.withColumn("outputs", emit(output(receipts, key="account", value=value)))

    return transform


def failing(settings: Settings) -> Transform:
    """Return a transform whose own code fails on each event."""

    def looked_up(name: str) -> str:
        return {"known": "account"}[name]

    def transform(events: DataFrame) -> DataFrame:
        events = events.withColumn("account", udf(looked_up)("account"))
        return payments(settings)(events)

    return transform


def speculating(settings: Settings) -> Transform:
    """Return the same transform, and let Spark run slow tasks twice at once, which the session forbids."""
    start = SparkSession.Builder.getOrCreate
    eager = {"": "true", ".interval": "200ms", ".multiplier": "1.0", ".quantile": "0.1", ".minTaskRuntime": "100ms"}

    def with_speculation(builder: Any) -> SparkSession:
        for name, value in eager.items():
            builder.config(f"spark.speculation{name}", value)
        return start(builder)

    patch.object(SparkSession.Builder, "getOrCreate", with_speculation).start()
    patch("pipeline.flow.job.check_session").start()
    return payments(settings)


@contextmanager
def spark_kept() -> Iterator[None]:
    """Leave Spark running at the end of a job: a start costs more than most jobs of a test."""
    with patch.object(SparkSession, "stop", lambda _: None):
        yield


@dataclass
class Seen:
    """What a run told; `then` is called after each batch, with the job, and may stop it."""

    then: Callable[[Job, Batch], object] = lambda _job, _batch: None
    job: Job | None = None
    run: int = 0
    lanes: dict[int, LaneRecord] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
        """Note where the run starts."""
        self.run = run
        self.lanes |= lanes

    def on_batch(self, batch: Batch) -> None:
        """Note the batch; what goes wrong here must not pass for a failure to watch."""
        self.batches.append(batch)
        self.lanes |= batch.lanes
        assert self.job is not None
        try:
            self.then(self.job, batch)
        except BaseException as error:
            self.failures.append(error)
            self.job.stop.set()
            raise

    @property
    def skipped(self) -> int:
        """Rows that were read again, and not written again."""
        return sum(report.skipped for batch in self.batches for report in batch.reports)


@dataclass(frozen=True)
class App:
    """A provisioned app."""

    settings: Settings
    folder: Path

    @property
    def bootstrap(self) -> str:
        """Its cluster."""
        return self.settings.source.bootstrap

    @property
    def topic(self) -> str:
        """Its source topic."""
        return self.settings.source.topic

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint folder."""
        return Path(self.settings.spark.checkpoint)

    def newest(self, log: str) -> int:
        """Return the number of the newest file of Spark's `offsets` or `commits`; -1 if there is none."""
        return max((int(path.name) for path in (self.checkpoint / log).glob("[0-9]*")), default=-1)

    def with_settings(self, **sections: Mapping[str, Any]) -> App:
        """Return the same app with other settings."""
        values = self.settings.model_dump()
        for section, given in sections.items():
            values[section].update(given)
        return App(build(values), self.folder)

    def another(self) -> App:
        """Return another app on the same source and checkpoint, provisioned."""
        name = fresh("app")
        topics = {"topics": (f"{name}-receipts", f"{name}-alerts"), "dead_letter_topic": f"{name}-dead"}
        app = self.with_settings(app={"id": name}, output=topics)
        provision(app.settings, lambda _: None)
        return app

    def send(self, count: int = 1_000, seed: int = 1) -> None:
        """Send payments, and all that goes wrong upstream; another seed has other producers."""
        send(self.bootstrap, self.topic, count=count, seed=seed, form=self.settings.codec.input)

    def pay(self, partition: int, numbers: range, producer: str = "till") -> None:
        """Send plain payments to one partition, numbered as one transaction of one producer."""
        self.put([(partition, number, producer, payment(b"%d" % number)) for number in numbers])

    def put(self, rows: list[tuple[int, int, str, bytes | None]]) -> None:
        """Send (partition, seq, producer, value) as they are."""
        client = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        for partition, seq, producer, value in rows:
            client.produce(self.topic, value, b"a", partition, headers=stamp(producer.encode(), 0, 0, seq))
        assert client.flush(DEADLINE_SECONDS) == 0

    def abort(self, rows: int = 5) -> None:
        """Put an aborted transaction at the end of every source partition."""
        client = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": fresh("aborted"), **QUIET})
        client.init_transactions(DEADLINE_SECONDS)
        client.begin_transaction()
        for partition in range(self.partitions):
            for seq in range(rows):
                value = payment(b"aborted-%d" % seq)
                client.produce(self.topic, value, b"a", partition, headers=stamp(b"aborted", 0, 0, seq))
        assert client.flush(DEADLINE_SECONDS) == 0
        client.abort_transaction(DEADLINE_SECONDS)

    @property
    def partitions(self) -> int:
        """How many partitions the source has now."""
        return Topics(self.bootstrap).one(self.topic, "source topic").partitions

    def grow(self, partitions: int) -> None:
        """Add partitions to the source topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(DEADLINE_SECONDS)
        wait_until(lambda: self.partitions == partitions, what=f"{self.topic} has {partitions} partitions")

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
        wait_until(lambda: topic not in admin.list_topics(timeout=DEADLINE_SECONDS).topics, what=f"{topic} is gone")

    def lose(self, before: Mapping[int, int]) -> None:
        """Delete the source's records below these offsets, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        asked = [TopicPartition(self.topic, partition, offset) for partition, offset in before.items()]
        for answer in admin.delete_records(asked).values():
            answer.result(DEADLINE_SECONDS)

    def ends(self) -> dict[int, int]:
        """Return the end of every source partition, behind the markers."""
        return Topics(self.bootstrap).offsets(self.topic, range(self.partitions), OffsetSpec.latest(), committed=False)

    def lag(self) -> int:
        """Return what a tool shows that compares the app's consumer group with the ends of the source."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.settings.group, **QUIET})
        ends = self.ends()
        try:
            places = [TopicPartition(self.topic, partition) for partition in ends]
            return sum(ends[place.partition] - place.offset for place in consumer.committed(places, DEADLINE_SECONDS))
        finally:
            consumer.close()

    def run(
        self,
        then: Callable[[Job, Batch], object] = lambda _job, _batch: None,
        *,
        transform: Transform | None = None,
        until_caught_up: bool = True,
    ) -> Seen:
        """Run the job in this process until it ends."""
        seen = Seen(then)
        group = GroupProgress(self.settings)
        observer = Observer([group, seen])
        job = Job(self.settings, observer, until_caught_up, transform or payments(self.settings))
        seen.job = job
        with spark_kept(), closing(group):
            job.run()
        assert not seen.failures
        return seen

    @contextmanager
    def running(self, transform: Transform | None = None) -> Iterator[Job]:
        """Run the job in a thread of this process until it is stopped, or the block ends."""
        group = GroupProgress(self.settings)
        job = Job(self.settings, Observer([group]), transform=transform or payments(self.settings))
        with spark_kept(), closing(group), ThreadPoolExecutor(1) as pool:
            ended = pool.submit(job.run)
            try:
                yield job
            finally:
                job.stop.set()
                ended.result(JOB_SECONDS)

    def audit(self) -> AuditResult:
        """Compare all that was written with what the source demands."""
        settings = self.settings
        with spark_kept():
            return audit(
                settings,
                lambda: expected_outputs(settings, ranges(settings), payments(settings)),
                patience=1.0,
            )

    def assert_exact(self) -> None:
        """Demand that all of the source was processed, and is there exactly once."""
        result = self.audit()
        assert result.exact, [result.line, *result.remarks()]
        assert result.caught_up, result.behind
        assert result.found > 0
        assert not open_partitions(self.settings)

    def written(self, topic: str) -> list[Record]:
        """Return what a `read_committed` reader finds in an output topic."""
        return read_committed(self.settings.output_bootstrap, topic)

    def start(
        self, transform: Callable[[Settings], Transform] = payments, environ: Mapping[str, str] | None = None
    ) -> Running:
        """Run the job in a process of its own, by the command line, with a transform of this module."""
        folder = self.folder / fresh("process")
        folder.mkdir()
        name = f"{transform.__module__}:{transform.__name__}"
        return Running(self.settings, folder, name, environ or {})


def new_app(
    bootstrap: str, folder: Path, *, partitions: int = 2, provisioned: bool = True, **sections: Mapping[str, Any]
) -> App:
    """Create a source topic and an app on it; `sections` go over its settings, key by key."""
    name = fresh("app")
    schema = folder / "payment.avsc"
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    values: dict[str, dict[str, Any]] = {
        "app": {"id": name},
        "source": {"bootstrap": bootstrap, "topic": create_topic(bootstrap, fresh("source"), partitions)},
        "output": {
            "topics": (f"{name}-receipts", f"{name}-alerts"),
            "dead_letter_topic": f"{name}-dead",
            "partitions": 2,
            "replication": 1,
        },
        "transaction": {"timeout_ms": 20_000},
        "codec": {"schema_file": str(schema), "output_schema_files": f"{folder}/{{topic}}.avsc"},
        # Two tasks at once: each has a Python worker of its own, which takes a second of CPU to start.
        "spark": {"master": "local[2,4]", "checkpoint": str(folder / "checkpoint")},
    }
    for section, given in sections.items():
        values.setdefault(section, {}).update(given)
    app = App(build(values), folder)
    if provisioned:
        provision(app.settings, lambda _: None)
    return app
