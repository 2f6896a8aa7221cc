"""The audit and the workload on a real broker, with a tiny pipeline in place of Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka import create_topic, fresh, read_committed, read_uncommitted
from tests.support.reference import Written, expected_outputs, lane_record, process, settings_for

from pipeline.errors import PipelineError, Unreachable
from pipeline.local.events import send
from pipeline.local.payments import ABORTED_PREFIX
from pipeline.observe.audit import audit, ranges
from pipeline.observe.audit.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.local.broker import Broker
    from pipeline.observe.audit import AuditResult
    from pipeline.observe.audit.records import Expected
    from pipeline.settings import Settings

PARTITIONS = 3
SECONDS = 30.0
Sent = list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


@dataclass
class App:
    """An app whose topics exist, and what is in its source."""

    settings: Settings
    bootstrap: str
    source: list[Record]
    topic_id: tuple[int, int]

    def lane(self, partition: int, until: int | None = None) -> Written:
        """Process a lane up to an offset."""
        records = [record for record in self.source if record.partition == partition]
        return process(self.settings, [record for record in records if until is None or record.offset < until])

    def end(self, partition: int) -> int:
        """Return where the source ends for the lane: behind the marker of the last transaction."""
        return max(record.offset for record in self.source if record.partition == partition) + 2

    def commit(self, partition: int, sent: Sent, next_offset: int, lane: Written, **fields: Any) -> None:
        """Write a lane's rows and record in one transaction."""
        producer = self.transaction(self.settings.transactional_id(partition), sent)
        values = {"partition": partition, "next_offset": next_offset, "topic_id": self.topic_id, **fields}
        key = self.settings.transactional_id(partition).encode()
        producer.produce(self.settings.lane_topic, lane_record(self.settings, lane, **values), key, partition)
        producer.commit_transaction(SECONDS)

    def transaction(self, transactional_id: str, sent: Sent) -> Producer:
        """Begin a transaction and deliver rows in it."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": transactional_id,
                "enable.sparse.connections": False,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for topic, key, value, headers in sent:
            producer.produce(topic, value, key, headers=headers)
        assert producer.flush(SECONDS) == 0
        return producer

    def run(self, spoil: Callable[[Sent], object] | None = None) -> None:
        """Write all lanes, each in two transactions; `spoil` changes what lane 1 sends."""
        for partition in range(PARTITIONS):
            middle = self.end(partition) // 2
            first, whole = self.lane(partition, middle), self.lane(partition)
            self.commit(partition, first.sent, middle, first)
            rest = whole.sent[len(first.sent) :]
            if spoil is not None and partition == 1:
                spoil(rest)
            self.commit(partition, rest, self.end(partition), whole)

    def expected(self) -> Callable[[], Iterator[Expected]]:
        """Ask the user function about all that is in the source."""
        return expected_outputs(self.settings, self.source)

    def audit(self, **options: Any) -> AuditResult:
        """Audit the app as it stands."""
        return audit(self.settings, self.expected(), patience=0.5, **options)


@pytest.fixture
def app(broker: Broker) -> App:
    """Make an app with fresh topics and a workload, not yet run."""
    settings = settings_for(broker.bootstrap, f"{fresh('t')}-")
    for topic in (settings.source.topic, *settings.output.topics, settings.output.dead_letter_topic):
        create_topic(broker.bootstrap, topic, PARTITIONS)
    create_topic(broker.bootstrap, settings.lane_topic, PARTITIONS, {"cleanup.policy": "compact"})
    send(broker.bootstrap, settings.source.topic, count=800)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = settings.source.topic
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).topic_id
    topic_id = found.get_most_significant_bits(), found.get_least_significant_bits()
    return App(settings, broker.bootstrap, source_of(broker, topic), topic_id)


def source_of(broker: Broker, topic: str) -> list[Record]:
    """Read the source with another reader than the audit's."""
    return [
        Record(record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in read_committed(broker.bootstrap, topic)
    ]


def test_what_an_exact_pipeline_wrote_is_found_exact(app: App) -> None:
    rubbish: Sent = [(app.settings.output.topics[0], b"k", b"of an aborted transaction", [])]
    app.transaction("aborts", rubbish).abort_transaction(SECONDS)
    app.run()
    result = app.audit()
    assert result.exact, result.remarks()
    assert result.caught_up
    assert result.read == len(app.source)
    written = sum(len(app.lane(partition).sent) for partition in range(PARTITIONS))
    assert result.line == f"audit: {written} expected, {written} found, 0 lost, 0 duplicated"
    assert ranges(app.settings) == {partition: (0, app.end(partition)) for partition in range(PARTITIONS)}


@pytest.mark.parametrize(
    ("spoil", "findings"),
    [
        (lambda sent: sent.pop(), (1, 0, 0)),
        (lambda sent: sent.append(sent[-1]), (0, 1, 0)),
        (lambda sent: sent.append((sent[0][0], b"k", b"v", [])), (0, 0, 1)),
        (lambda sent: sent.__setitem__(-1, (*sent[-1][:3], [("x", b"y"), *sent[-1][3]])), (1, 0, 1)),
    ],
    ids=["dropped", "repeated", "invented", "altered"],
)
def test_a_spoilt_row_is_found(app: App, spoil: Callable[[Sent], object], findings: tuple[int, int, int]) -> None:
    app.run(spoil)
    result = app.audit()
    assert not result.exact
    assert (result.lost, result.duplicated, result.unexpected) == findings
    assert result.out_of_order == 0
    assert result.counters_wrong == []


def test_rows_of_one_key_in_another_order_are_found(app: App) -> None:
    receipts = app.settings.output.topics[0]

    def swap(sent: Sent) -> None:
        key = next(row[1] for row in sent if row[0] == receipts and sum(row[:2] == other[:2] for other in sent) > 1)
        first, second = [place for place, row in enumerate(sent) if row[:2] == (receipts, key)][:2]
        sent[first], sent[second] = sent[second], sent[first]

    app.run(swap)
    result = app.audit()
    assert (result.lost, result.duplicated, result.unexpected, result.out_of_order) == (0, 0, 0, 1)
    assert not result.exact


def test_a_counter_that_counted_an_attempt_twice_is_found(app: App) -> None:
    app.run()
    lane = app.lane(2)
    lane.counters = replace(lane.counters, written=lane.counters.written + 1)
    app.commit(2, [], app.end(2), lane)
    result = app.audit()
    assert len(result.counters_wrong) == 1
    assert "written is" in result.counters_wrong[0]
    assert not result.exact


def test_a_transaction_that_was_left_open_is_found_and_does_not_hang_the_audit(app: App) -> None:
    app.run()
    receipts = app.settings.output.topics[0]
    producer = app.transaction("forgets", [(receipts, b"k", b"v", [])])
    result = app.audit()
    assert [line.startswith(f"{receipts}, partition ") for line in result.open_transactions] == [True]
    assert (result.lost, result.duplicated, result.unexpected) == (0, 0, 0)
    assert not result.exact
    producer.abort_transaction(SECONDS)
    assert app.audit().exact


def test_what_came_after_the_lanes_last_commit_is_behind(app: App) -> None:
    app.run()
    before = len(app.source)
    summary = send(app.bootstrap, app.settings.source.topic, count=100, seed=2)
    result = app.audit()
    assert result.exact, result.remarks()
    assert result.read == before
    assert sum(result.behind.values()) == summary.sent
    assert not result.caught_up


def test_what_stood_in_the_output_before_is_left_out_by_start_offsets(app: App) -> None:
    receipts = app.settings.output.topics[0]
    app.transaction("earlier", [(receipts, b"k", b"v", [])]).commit_transaction(SECONDS)
    starts = {(receipts, record.partition): record.offset + 1 for record in read_committed(app.bootstrap, receipts)}
    app.run()
    assert app.audit().unexpected == 1
    assert app.audit(start_offsets=starts).exact


def test_source_data_that_retention_took_ends_the_audit(app: App) -> None:
    app.run()
    topic = app.settings.source.topic
    admin = AdminClient({"bootstrap.servers": app.bootstrap})
    next(iter(admin.delete_records([TopicPartition(topic, 1, 5)]).values())).result(SECONDS)
    with pytest.raises(PipelineError, match=f"{topic}, partition 1: retention took the offsets 0 to 4"):
        app.audit()


def test_a_lane_that_is_ahead_of_the_source_ends_the_audit(app: App) -> None:
    app.run()
    app.commit(0, [], app.end(0) + 1, app.lane(0))
    with pytest.raises(PipelineError, match=f"lane stands at {app.end(0) + 1}, but the log ends at {app.end(0)}"):
        app.audit()


def test_an_app_without_topics_gets_one_clear_line(broker: Broker) -> None:
    settings = settings_for(broker.bootstrap, f"{fresh('none')}-")
    with pytest.raises(Unreachable, match=f"{settings.output.topics[0]}: UNKNOWN_TOPIC_OR_PART"):
        audit(settings, list)


def test_the_workload_is_in_the_topic_and_its_aborted_part_is_hidden(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    seen: list[tuple[int, int]] = []
    summary = send(broker.bootstrap, topic, count=500, seed=5, progress=lambda done, count: seen.append((done, count)))
    visible = read_committed(broker.bootstrap, topic)
    raw = read_uncommitted(broker.bootstrap, topic)
    assert len(visible) == summary.sent
    assert len(raw) == summary.sent + summary.kinds["aborted"]
    assert not any(ABORTED_PREFIX in (record.value or b"") for record in visible)
    assert sum(ABORTED_PREFIX in (record.value or b"") for record in raw) == summary.kinds["aborted"]
    assert seen == sorted(seen)
    assert seen[-1] == (500, 500)


def test_a_workload_for_a_topic_that_does_not_exist_gets_one_clear_line(broker: Broker) -> None:
    with pytest.raises(PipelineError, match="no such topic"):
        send(broker.bootstrap, fresh("none"), count=10)
