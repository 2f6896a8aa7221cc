"""One transaction: all of it or nothing, and what is uncertain is settled by the next fence, never by an abort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.kafka import read_committed, read_uncommitted, wait_until
from tests.support.lanes import App, leave_open, provisioned, row, spy_on_producers
from tests.support.proxy import END_TXN, PRODUCE, ProxiedBroker

from pipeline.kafka import Fatal, Fenced, TransactionFailed
from pipeline.lanes.recall import recall
from pipeline.lanes.takeover import fence
from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.local.broker import Broker

# The shortest that settings allow: a record that cannot be delivered holds up the others for this long.
SHORT = {"timeout_ms": 1_000, "chunk_seconds": 0.5}
INVALID_PRODUCER_EPOCH = 47
TIMED_OUT = -185  # librdkafka's local code


@pytest.fixture(scope="module")
def proxied() -> Iterator[ProxiedBroker]:
    with ProxiedBroker() as running:
        yield running


def give_up_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Shorten the time in which failed work is started again."""
    monkeypatch.setattr("pipeline.kafka.GIVE_UP_SECONDS", seconds)


def break_commits(monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any], None], times: int = 1) -> list[str]:
    """Replace the next commits by `broken`, which gets the producer; returns the calls that were made."""
    calls: list[str] = []
    spy = spy_on_producers(monkeypatch, calls)

    class Breaking(spy):  # type: ignore[misc,valid-type]
        def commit_transaction(self, *args: Any) -> None:
            nonlocal times
            times -= 1
            if times < 0:
                super().commit_transaction(*args)
            else:
                calls.append("commit")
                broken(super())

    monkeypatch.setattr("pipeline.lanes.transaction.Producer", Breaking)
    return calls


def timed_out(_producer: Any) -> None:
    """Fail as a commit whose request never left."""
    raise KafkaException(KafkaError(TIMED_OUT))


def timed_out_after_commit(producer: Any) -> None:
    """Fail as a commit whose answer was lost."""
    producer.commit_transaction(30)
    raise KafkaException(KafkaError(TIMED_OUT))


def refused_row(app: App, monkeypatch: pytest.MonkeyPatch) -> TransactionFailed:
    """Write nine good rows and one that is too large for its topic; return the error."""
    give_up_after(monkeypatch, 0.1)
    rows = app.rows(0, 10)
    rows[5] = row(5, [(app.out, b"key", bytes(30_000), None)])
    with pytest.raises(TransactionFailed) as caught:
        app.write(0, 10, rows, batch_bytes=20_000)
    return caught.value


def test_one_refused_record_fails_the_whole_transaction(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"max.message.bytes": "20000"}
    app = provisioned(broker.bootstrap, out_config=small, transaction=SHORT, output={"compression": "none"})
    error = refused_row(app, monkeypatch)
    assert app.out in str(error)
    assert "MSG_SIZE_TOO_LARGE" in str(error)
    assert app.written() == []
    assert [lane.next_offset for lane in app.lane_records()] == [0]


def test_many_small_records_go_to_a_topic_that_takes_small_batches_only(broker: Broker) -> None:
    small = {"max.message.bytes": "20000"}
    app = provisioned(broker.bootstrap, out_config=small, output={"compression": "none"})
    report = app.write(0, 5_000, batch_bytes=20_000)
    assert (report.failures, len(app.written())) == ({}, 5_000)


def test_a_record_of_the_size_that_kafka_takes_by_default_is_written(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, output={"compression": "none"})
    value = bytes(1_048_000)
    report = app.write(0, 1, [row(0, [(app.out, b"key", value, None)])])
    assert report.failures == {}
    assert app.recalled().value == report.record
    assert [record.value for record in read_committed(broker.bootstrap, app.out)] == [value]


@pytest.mark.parametrize(
    "broken", [timed_out, timed_out_after_commit], ids=["that did not happen", "whose answer was lost"]
)
def test_an_uncertain_commit_is_settled_by_fence_and_recall(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any], None]
) -> None:
    app = provisioned(broker.bootstrap)
    break_commits(monkeypatch, broken)
    report = app.write(0, 10)
    assert app.written() == list(range(10))
    assert [lane.next_offset for lane in app.lane_records()] == [0, 10]
    assert report.failures == {"fatal": 1}
    assert report.record == app.recalled().value


@pytest.mark.parametrize(
    "broken", [timed_out, timed_out_after_commit], ids=["that did not happen", "whose answer was lost"]
)
def test_the_chunks_after_an_uncertain_commit_go_on_from_the_truth(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any], None]
) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 5})
    break_commits(monkeypatch, broken, times=2)
    app.write(0, 20)
    assert app.written() == list(range(20))
    assert [lane.next_offset for lane in app.lane_records()] == [0, 5, 10, 15, 20]
    assert app.lane().counters.read == 20


def test_nothing_is_aborted_once_commit_was_called(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(broker.bootstrap)
    calls = break_commits(monkeypatch, timed_out)
    app.write(0, 3)
    assert calls.count("commit") == 2
    assert "abort" not in calls
    assert calls.count("init") == 2


def test_what_fails_before_the_commit_is_aborted_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(broker.bootstrap)
    stale = app.recalled()
    app.write(0, 3)
    calls: list[str] = []
    spy_on_producers(monkeypatch, calls)
    app.write(0, 6, recalled=stale)
    assert calls.index("abort") < calls.index("commit")
    assert app.written() == list(range(6))


def test_a_fence_aborts_what_an_earlier_writer_left_open_and_shuts_it_out(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    zombie = leave_open(app)
    report = app.write(0, 5)
    assert report.failures == {}, "ended by the fence, not by its time-out"
    with pytest.raises(Fenced):
        zombie.commit()
    assert app.written() == list(range(5))


@pytest.mark.fault("D4")
def test_a_transaction_that_outlives_its_time_out_is_written_anew(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap, transaction=SHORT)
    real = Transaction.flush_and_compare
    waited: list[int] = []

    def slow(self: Transaction, end: int, before: str = "") -> int:
        landed = real(self, end, before)
        if not waited:
            waited.append(end)
            wait_until(lambda: app.glance().end == end + 2, what="the broker has aborted the transaction")
        return landed

    monkeypatch.setattr(Transaction, "flush_and_compare", slow)
    report = app.write(0, 10)
    assert (report.failures, app.written()) == ({"fenced": 1}, list(range(10)))


def test_a_producer_that_was_fenced_cannot_even_send(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    zombie = fence(app.settings, 0)
    end = app.glance().end
    fence(app.settings, 0)
    zombie.begin()
    zombie.send_all([app.output(1)])
    zombie.put_lane_record(app.settings.lane_topic, 0, b"key", b"value")
    with pytest.raises(Fatal):  # fenced, though the client may lose that word on its way
        zombie.flush_and_compare(end)
    zombie.abandon()
    with pytest.raises(Fenced):  # asked once more, it has the word
        zombie.commit()
    assert read_uncommitted(broker.bootstrap, app.out) == []


@pytest.mark.fault("D1")
def test_a_late_end_of_an_earlier_transaction_cannot_end_a_later_one(proxied: ProxiedBroker) -> None:
    app = provisioned(proxied.bootstrap, output={"bootstrap": proxied.proxied, "compression": "none"})
    held = proxied.proxy.hold_next(END_TXN)
    app.write(0, 10)  # its commit breaks off, and is sent again by the client
    codes: list[int] = []
    proxied.proxy.after_next(PRODUCE, lambda: codes.append(held.release()))
    # Several batches: the late request arrives between the first and the second of them.
    rows = [row(offset, [(app.out, b"key", b"%d" % offset + b" " * 300_000, None)]) for offset in range(10, 20)]
    report = app.write(10, 20, rows)
    assert app.written() == list(range(20))
    assert (codes, report.failures) == ([INVALID_PRODUCER_EPOCH], {})


@pytest.mark.fault("D2")
@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_whose_answer_is_lost_on_the_way_is_settled_by_the_client(proxied: ProxiedBroker, times: int) -> None:
    app = provisioned(proxied.bootstrap, output={"bootstrap": proxied.proxied})
    proxied.proxy.lose_answers(END_TXN, times)
    report = app.write(0, 10)
    assert (app.written(), report.failures) == (list(range(10)), {})


@pytest.mark.fault("D2")
def test_a_commit_whose_answers_are_all_lost_is_settled_by_fence_and_recall(
    proxied: ProxiedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(proxied.bootstrap, output={"bootstrap": proxied.proxied}, transaction=SHORT)
    monkeypatch.setattr("pipeline.lanes.transaction.MARGIN_SECONDS", 0.5)
    proxied.proxy.lose_answers(END_TXN, 1_000)
    calls: list[str] = []
    spy_on_producers(monkeypatch, calls)
    recalls: list[Any] = []

    def healing(*args: Any) -> Any:
        if recalls:  # the network heals before the second recall
            proxied.proxy.forget_rules()
        recalls.append(recall(*args))
        return recalls[-1]

    monkeypatch.setattr("pipeline.lanes.writer.recall", healing)
    report = app.write(0, 10)
    assert app.written() == list(range(10))
    assert [lane.next_offset for lane in app.lane_records()] == [0, 10]
    assert sum(report.failures.values()) == 1
    assert "abort" not in calls
