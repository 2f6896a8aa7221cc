"""Kafka's errors become ours once: retriable, abortable, fatal, and unknown, which is fatal."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.errors import Unreachable
from pipeline.kafka import (
    Abortable,
    Fatal,
    Fenced,
    TransactionFailed,
    as_kind,
    consumer_config,
    mapped,
    producer_config,
    reachable,
    until_deadline,
    until_given_up,
)
from pipeline.settings import build

FENCED = -144  # librdkafka's local codes
TIMED_OUT = -185
UNHEARD_OF = 31_999

SETTINGS = build(
    {
        "app": {"id": "app"},
        "source": {"bootstrap": "here:1", "topic": "in"},
        "output": {"bootstrap": "there:1", "topics": ["out"], "dead_letter_topic": "dead"},
    }
)


def error(code: int, *, retriable: bool = False, abort: bool = False, fatal: bool = False) -> KafkaError:
    """Return an error as a client gives it."""
    return KafkaError(code, "why", fatal=fatal, retriable=retriable, txn_requires_abort=abort)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (error(FENCED, fatal=True), Fenced),
        (error(KafkaError.INVALID_PRODUCER_EPOCH), Fenced),
        (error(KafkaError.PRODUCER_FENCED, abort=True), Fenced),
        (error(KafkaError.MSG_SIZE_TOO_LARGE, abort=True), Abortable),
        (error(KafkaError.TOPIC_AUTHORIZATION_FAILED, fatal=True), Fatal),
        (error(TIMED_OUT, retriable=True), Fatal),
        (error(KafkaError.INVALID_TXN_STATE), Fatal),
        (error(UNHEARD_OF), Fatal),
    ],
)
def test_each_error_has_one_kind_and_an_unknown_one_is_fatal(cause: KafkaError, kind: type[TransactionFailed]) -> None:
    found = as_kind(cause, "commit lane")
    assert type(found) is kind
    assert str(found) == f"commit lane: {cause.name()}: why"


def test_a_client_error_is_mapped_with_its_cause() -> None:
    cause = KafkaException(error(KafkaError.MSG_SIZE_TOO_LARGE, abort=True))
    with pytest.raises(Abortable, match="produce to t: MSG_SIZE_TOO_LARGE") as caught, mapped("produce to t"):
        raise cause
    assert caught.value.__cause__ is cause


def test_a_fatal_error_that_a_delivery_report_met_is_mapped_too() -> None:
    with pytest.raises(Fenced, match="flush lane: _FENCED"), mapped("flush lane"):
        raise SystemError from KafkaException(error(FENCED, fatal=True))


def test_an_error_that_the_client_lost_is_fatal() -> None:
    with pytest.raises(Fatal, match="flush lane: the client failed without a reason"), mapped("flush lane"):
        raise SystemError


def test_a_queue_that_stays_full_is_an_error_that_says_so() -> None:
    with pytest.raises(Fatal, match="queue stayed full"), mapped("produce to t"):
        raise BufferError


def test_a_retriable_call_is_repeated_as_it_stands() -> None:
    left: list[float] = []

    def call(seconds: float) -> str:
        left.append(seconds)
        if len(left) < 3:
            raise KafkaException(error(TIMED_OUT, retriable=True))
        return "done"

    assert until_deadline(call, 10.0) == "done"
    assert left == sorted(left, reverse=True)
    assert left[0] <= 10.0


def test_a_call_that_is_not_retriable_is_made_once() -> None:
    calls = []

    def call(_: float) -> None:
        calls.append(1)
        raise KafkaException(error(TIMED_OUT))

    with pytest.raises(KafkaException):
        until_deadline(call, 10.0)
    assert calls == [1]


def test_a_retriable_call_ends_at_the_deadline() -> None:
    def call(_: float) -> None:
        raise KafkaException(error(TIMED_OUT, retriable=True))

    with pytest.raises(KafkaException):
        until_deadline(call, 0.01)


def test_failed_work_is_started_again_and_told_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.kafka.BACK_OFF_SECONDS", 0.0)
    attempts: list[int] = []
    noted: list[TransactionFailed] = []

    def work(attempt: int) -> str:
        attempts.append(attempt)
        if attempt < 3:
            msg = f"attempt {attempt}"
            raise Fatal(msg)
        return "done"

    assert until_given_up(work, noted.append) == "done"
    assert (attempts, [str(failure) for failure in noted]) == ([1, 2, 3], ["attempt 1", "attempt 2"])


def test_failed_work_is_given_up_after_its_time_but_never_at_the_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.kafka.BACK_OFF_SECONDS", 0.0)
    monkeypatch.setattr("pipeline.kafka.GIVE_UP_SECONDS", -1.0)

    def work(attempt: int) -> None:
        msg = f"attempt {attempt}"
        raise Fatal(msg)

    with pytest.raises(Fatal, match="attempt 2"):
        until_given_up(work)


def test_any_other_error_ends_the_work_at_once() -> None:
    def work(_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        until_given_up(work)


def test_a_cluster_that_does_not_answer_is_named() -> None:
    with (
        pytest.raises(Unreachable, match=r"list topics: _TIMED_OUT: why \(cluster here:1\)"),
        reachable("here:1", "list topics"),
    ):
        raise KafkaException(error(TIMED_OUT))


def test_a_producer_writes_to_the_output_cluster_in_batches_that_every_topic_takes() -> None:
    config = producer_config(SETTINGS, "lane", 20_000)
    assert config["allow.auto.create.topics"] is False, "a topic that was deleted stays so"
    assert (config["bootstrap.servers"], config["transactional.id"], config["batch.size"]) == (
        "there:1",
        "lane",
        20_000,
    )
    assert producer_config(SETTINGS, "lane", 50_000_000)["batch.size"] < 1_048_588


def test_a_reader_sees_committed_records_only_and_is_told_the_end() -> None:
    config = consumer_config("here:1")
    assert (config["isolation.level"], config["enable.partition.eof"]) == ("read_committed", True)
    assert config["auto.offset.reset"] == "error"


@pytest.mark.parametrize(("connections", "sparse"), [("all", False), ("needed", True)])
def test_a_producer_connects_to_all_brokers_or_to_those_it_needs(connections: str, *, sparse: bool) -> None:
    settings = build(
        {
            "app": {"id": "app"},
            "source": {"bootstrap": "localhost:1", "topic": "source"},
            "output": {"topics": ("out",), "dead_letter_topic": "dead"},
            "transaction": {"connections": connections},
        }
    )
    assert producer_config(settings, "app.source.0")["enable.sparse.connections"] is sparse


def test_a_bare_error_that_no_handler_of_python_would_catch_has_its_kind_too() -> None:
    assert not issubclass(KafkaError, BaseException)
    with pytest.raises(Fenced, match="flush lane: _FENCED: why"), mapped("flush lane"):
        # As confluent-kafka does in mid callback.
        raise error(FENCED, fatal=True)
