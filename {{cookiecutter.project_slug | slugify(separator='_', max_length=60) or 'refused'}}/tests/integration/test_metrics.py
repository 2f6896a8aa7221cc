"""Metrics against the truth: what is scraped is what the topics hold, whatever was killed; lag is what tools see."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, OffsetSpec
from prometheus_client import CollectorRegistry
from tests.support.figures import batch
from tests.support.job import new_app
from tests.support.kafka import DEADLINE_SECONDS, QUIET, fresh, read_committed, wait_until
from tests.support.lanes import App, provisioned, row

from pipeline.errors import PipelineError
from pipeline.kafka import Fatal
from pipeline.lanes.record import decode
from pipeline.lanes.topics import Topics
from pipeline.lanes.transaction import Transaction
from pipeline.local.node import free_ports
from pipeline.local.processes import signal_all, tree
from pipeline.observe.families import FAMILIES, LANE
from pipeline.observe.lag import GroupProgress, Poller
from pipeline.observe.metrics import Metrics
from pipeline.observe.scrape import Scrape, scrape
from pipeline.observe.watch import endpoint_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.job import App as Whole
    from tests.support.running import Running

    from pipeline.local.broker import Broker
    from pipeline.settings import Settings

SCRAPE_EVERY = 0.5
# Figures that may only rise, however often the job is killed.
LANE_COUNTERS = [family.name for family in FAMILIES if family.kind == "counter" and family.labels[:2] == LANE]


@dataclass
class Watched:
    """A job that is scraped again and again, through its restarts; each figure is compared with the one before."""

    app: Whole
    scrapes: list[Scrape] = field(default_factory=list)
    latest: Scrape | None = None
    due: float = 0.0

    def look(self) -> Scrape | None:
        """Scrape if it is time to: a condition is asked for more often than a job should be."""
        if time.monotonic() > self.due:
            self.latest = self.scrape()
            self.due = time.monotonic() + SCRAPE_EVERY
        return self.latest

    def scrape(self) -> Scrape | None:
        """Scrape once, if the job answers; no figure of a lane may be lower than ever before."""
        try:
            now = scrape(endpoint_of(self.app.settings))
        except PipelineError:
            return None
        for name in (*LANE_COUNTERS, "pipeline_lane_next_offset"):
            for labels, value in (self.scrapes[-1] if self.scrapes else now).labelled(name):
                # A job that has not taken its lanes over shows none; it never shows a lower one.
                shown = now.samples.get(name, {}).get(tuple(sorted(labels.items())), value)
                assert shown >= value, (name, labels)
        if now.samples.get("pipeline_records_read_total"):
            self.scrapes.append(now)
        return now

    def total(self, name: str) -> float:
        """Sum up a metric; 0 if the job does not answer."""
        now = self.look()
        return now.total(name) if now is not None else 0.0

    def is_caught_up(self, since: float) -> bool:
        """Tell whether a poll after `since` found no lag in any lane, and no transaction open.

        Lanes are shown as they are now, the rest as it was polled: lag may be over before what wrote the last of it is.
        """
        now = self.look()
        if now is None or now.total("pipeline_last_poll_timestamp_seconds") < since:
            return False
        lags = now.lanes("pipeline_lag_records")
        hidden = now.samples.get("pipeline_open_transaction_records", {})
        return len(lags) == self.app.partitions and not any(lags.values()) and bool(hidden) and not any(hidden.values())


def stable(settings: Settings, partitions: int) -> dict[int, int]:
    """Return the last stable offsets of the source."""
    topics = Topics(settings.source.bootstrap)
    return topics.offsets(settings.source.topic, range(partitions), OffsetSpec.latest())


def group_offsets(settings: Settings) -> dict[int, int]:
    """Return the offsets of the app's consumer group, as kafka-consumer-groups reads them."""
    admin = AdminClient({"bootstrap.servers": settings.source.bootstrap, **QUIET})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(settings.group)])
    found = asked[settings.group].result(DEADLINE_SECONDS).topic_partitions
    return {place.partition: place.offset for place in found if place.topic == settings.source.topic}


def taken_over(app: Whole, run: int) -> list[Any]:
    """Return the counters of each lane as they were when a run took it over."""
    first: dict[int, Any] = {}
    for record in read_committed(app.bootstrap, app.settings.lane_topic):
        lane = decode(record.value or b"")
        if lane.run == run:
            first.setdefault(record.partition, lane.counters)
    return list(first.values())


def run_and_kill(app: Whole, watched: Watched, read: int) -> None:
    """Run the job until so many records are read, and kill it in mid transaction."""
    with app.start() as running:
        running.wait_for(f"{read} records are read", lambda: watched.total("pipeline_records_read_total") > read)
        running.wait_for_open_transaction()
        signal_all(tree(running.pid), signal.SIGKILL)
        running.wait()
    assert watched.scrape() is None


def finish(app: Whole, watched: Watched, running: Running) -> Scrape:
    """Send more while the job runs, wait until a poll behind all of it finds it done, and stop it; the last look."""
    running.wait_for("it is ready", lambda: (now := watched.look()) is not None and now.ready == "ready")
    app.send(1_000, seed=2)
    app.abort()
    sent = time.time()
    running.wait_for("it is caught up", lambda: watched.is_caught_up(sent))
    ends = stable(app.settings, app.partitions)
    running.wait_for("the group shows it", lambda: group_offsets(app.settings) == ends)
    done = time.time()
    running.wait_for("a poll behind it sees the same", lambda: watched.is_caught_up(done))
    last = watched.latest
    assert last is not None
    signal_all([running.pid], signal.SIGTERM)
    assert running.wait() == 0, running.log
    return last


@pytest.mark.timeout(600)
def test_what_is_scraped_from_a_job_that_was_killed_is_what_the_audit_finds(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.job.JOB_SECONDS", 200.0)  # it is scraped all the time, beside two cold starts
    app = new_app(
        broker.bootstrap,
        tmp_path,
        metrics={"port": free_ports(1)[0].client},
        source={"max_offsets_per_trigger": 600},
        transaction={"chunk_rows": 100, "timeout_ms": 20_000},
    )
    app.send(3_000)
    watched = Watched(app)
    run_and_kill(app, watched, 500)
    with app.start() as running:
        last = finish(app, watched, running)
    truth = app.audit()
    assert truth.exact, truth.remarks()
    assert truth.caught_up, truth.behind
    assert last.total("pipeline_run") == 2
    assert last.total("pipeline_records_read_total") == truth.read > 4_000
    assert last.total("pipeline_records_written_total") == sum(counts.found for counts in truth.outputs.values())
    hits = {verdict: count for verdict, count in truth.verdicts.items() if verdict != "fresh"}
    assert last.by("pipeline_dedup_hits_total", "verdict") == hits
    letters = {reason: counts.found for reason, counts in truth.dead_letters.items() if counts.found}
    shown = last.by("pipeline_dead_letters_total", "reason")
    assert {reason: count for reason, count in shown.items() if count} == letters
    assert hits["duplicate"] > 0
    assert letters["identity"] > 0
    # What this process did is what the lanes went on by since it took them over.
    before = taken_over(app, 2)
    read = truth.read - sum(counters.read for counters in before)
    assert last.total("pipeline_end_to_end_latency_seconds_count") == read < truth.read
    done = last.total("pipeline_lane_transactions_total") - sum(counters.transactions for counters in before)
    outcomes = last.by("pipeline_transactions_total", "outcome")
    assert outcomes["committed"] + outcomes["unknown_committed"] == done > 0
    assert last.total("pipeline_transaction_duration_seconds_count") == done
    assert last.total("pipeline_open_transaction_records") == 0
    assert len(watched.scrapes) > 5


def test_a_job_that_is_stopped_in_mid_batch_has_published_all_that_it_committed(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path, transaction={"chunk_rows": 20, "timeout_ms": 20_000})
    app.send(8_000)
    with app.start() as running:
        running.wait_for_progress(200)
        signal_all([running.pid], signal.SIGTERM)
        assert running.wait() == 0, running.log
    lanes = {
        record.partition: decode(record.value or b"")
        for record in read_committed(app.bootstrap, app.settings.lane_topic)
    }
    offsets = {partition: lane.next_offset for partition, lane in lanes.items()}
    assert 200 <= sum(offsets.values()) < sum(app.ends().values()), "it was not in the middle"
    assert group_offsets(app.settings) == offsets


class Exposed:
    """The metrics of one process that works on an app without Spark."""

    def __init__(self, app: App) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics.build(app.settings, self.registry)
        self._labels = {"topic": app.source.name}
        self.metrics.on_start(1, {0: decode(app.recalled().value)})

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample of the source topic."""
        return self.registry.get_sample_value(name, {**self._labels, **labels})

    def lane(self, name: str, **labels: str) -> float | None:
        """Return one sample of lane 0."""
        return self.value(name, partition="0", **labels)


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up after it."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["fence", "begin", "send_all", "put_lane_record", "flush_and_compare", "commit"])
def test_figures_are_the_truth_at_whatever_step_the_writer_was_killed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 10})
    rows = [row(offset, [app.output(offset)], seq=offset // 2) for offset in range(30)]  # each one twice
    killed = Exposed(app)
    killed.metrics.on_batch(batch(app.write(0, 5, rows[:5])))
    real = getattr(Transaction, step)

    def kill(self: Transaction, *args: Any, **given: Any) -> None:
        if after:
            real(self, *args, **given)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(Transaction, step, kill)
        dying.setattr(Transaction, "abandon", lambda _: None)
        with pytest.raises(Killed):
            app.write(0, 15, rows[:15])
    restarted = Exposed(app)
    for name in ("pipeline_records_read_total", "pipeline_records_written_total", "pipeline_lane_transactions_total"):
        assert 0 < (killed.lane(name) or 0) <= (restarted.lane(name) or 0), name
    restarted.metrics.on_batch(batch(app.write(0, 30, rows)))
    written = app.written()
    assert restarted.lane("pipeline_records_read_total") == 30
    assert restarted.lane("pipeline_records_written_total") == len(written) == 15
    assert restarted.lane("pipeline_dedup_hits_total", verdict="duplicate") == 15
    history = [lane.next_offset for lane in app.lane_records()]
    assert restarted.lane("pipeline_lane_transactions_total") == len(history) - 1
    assert restarted.lane("pipeline_lane_next_offset") == history[-1] == 30


@pytest.mark.parametrize(
    ("happened", "outcome"), [(True, "unknown_committed"), (False, "unknown_not_committed")], ids=["did", "did not"]
)
def test_an_uncertain_commit_is_counted_as_what_it_turned_out_to_be(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, outcome: str, *, happened: bool
) -> None:
    app = provisioned(broker.bootstrap)
    real, uncertain = Transaction.commit, [True]

    def commit(self: Transaction) -> None:
        if uncertain and happened:
            real(self)
        if uncertain and uncertain.pop():
            self._abortable = False
            msg = "no answer"
            raise Fatal(msg)
        real(self)

    monkeypatch.setattr(Transaction, "commit", commit)
    exposed = Exposed(app)
    report = app.write(0, 10)
    exposed.metrics.on_batch(batch(report))
    assert app.written() == list(range(10))
    expected = {outcome: 1} if happened else {outcome: 1, "committed": 1}
    assert report.outcomes == expected
    assert exposed.value("pipeline_transactions_total", outcome=outcome) == 1
    # Its rows are counted once either way, and are not taken for replayed ones.
    assert exposed.value("pipeline_end_to_end_latency_seconds_count") == 10
    assert exposed.value("pipeline_records_skipped_total") == 0
    assert exposed.lane("pipeline_lane_transactions_total") == 1


@pytest.mark.fault("A3")
def test_lag_is_counted_to_the_last_stable_offset_and_open_transactions_apart(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    exposed = Exposed(app)
    poller = Poller(app.settings, exposed.metrics)
    group = GroupProgress(app.settings)
    group.on_start(1, {0: app.lane()})

    def polled() -> tuple[float | None, float | None, float | None]:
        poller.work()
        names = ("pipeline_lag_records", "pipeline_lag_seconds", "pipeline_open_transaction_records")
        lag, seconds, behind = (exposed.lane(name) for name in names)
        return lag, seconds, behind

    assert polled() == (0, 0, 0)
    upstream = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("upstream"), **QUIET})
    upstream.init_transactions(DEADLINE_SECONDS)
    upstream.begin_transaction()
    hour_ago = int((time.time() - 3_600) * 1_000)
    for _ in range(5):
        upstream.produce(app.source.name, b"value", b"key", 0, timestamp=hour_ago)
    upstream.flush(DEADLINE_SECONDS)
    assert polled() == (0, 0, 5)
    upstream.commit_transaction(DEADLINE_SECONDS)
    wait_until(lambda: stable(app.settings, 1) == {0: 6}, what="the marker is written")
    lag, seconds, behind = polled()
    assert (lag, behind) == (6, 0)
    assert seconds == pytest.approx(3_600, abs=60)

    # A batch moves the lane past the records; the marker behind them is still ahead, and holds nothing to read.
    moved = batch(app.write(0, 5))
    exposed.metrics.on_batch(moved)
    assert exposed.lane("pipeline_lag_records") == 1
    assert polled() == (1, 0, 0)
    exposed.metrics.on_batch(batch(app.write(5, 6, [])))
    assert (exposed.lane("pipeline_lag_records"), exposed.lane("pipeline_lag_seconds")) == (0, 0)
    assert polled() == (0, 0, 0)
    group.on_batch(batch(app.write(5, 6, [])))
    group.close()
    assert group_offsets(app.settings) == stable(app.settings, 1) == {0: 6}


def test_open_transactions_of_the_output_and_of_the_lanes_are_seen(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    exposed = Exposed(app)
    poller = Poller(app.settings, exposed.metrics)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("open"), **QUIET})
    writer.init_transactions(DEADLINE_SECONDS)
    writer.begin_transaction()
    for topic in (app.out, app.settings.output.dead_letter_topic, app.settings.lane_topic):
        writer.produce(topic, b"never committed", b"key", 0)
    writer.flush(DEADLINE_SECONDS)

    def seen(topic: str) -> float | None:
        return exposed.value("pipeline_open_transaction_records", topic=topic, partition="0")

    topics = (app.out, app.settings.output.dead_letter_topic, app.settings.lane_topic)
    poller.work()
    assert [seen(topic) for topic in topics] == [1, 1, 1]
    assert seen(app.source.name) == 0
    writer.abort_transaction(DEADLINE_SECONDS)

    def settled() -> bool:
        poller.work()
        return [seen(topic) for topic in topics] == [0, 0, 0]

    wait_until(settled, what="nothing is open any more")
