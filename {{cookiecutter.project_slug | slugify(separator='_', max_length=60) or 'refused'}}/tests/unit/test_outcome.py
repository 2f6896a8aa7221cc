"""Outcomes: each attempt is counted once, and an uncertain commit only when the log has settled it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.kafka import Abortable, Fatal, Fenced, TransactionFailed, mapped
from pipeline.lanes.outcome import Attempts, Outcome, outcome_of
from pipeline.lanes.report import Commit
from pipeline.lanes.transaction import Moved

OLD, TRIED = b"what the lane held before", b"what was tried"
COMMIT = Commit(rows=7)


def commit() -> Commit:
    return COMMIT


class Counted:
    """Attempts with the counts they fill."""

    def __init__(self, timeout: float = 30.0) -> None:
        self.counts: dict[str, int] = {}
        self.attempts = Attempts(self.counts, timeout)

    def reach_commit(self) -> None:
        self.attempts.began()
        self.attempts.committing(TRIED, commit)


def client_error(code: int) -> TransactionFailed:
    """Return one of Kafka's errors as our own."""
    with pytest.raises(TransactionFailed) as caught, mapped("produce"):
        raise KafkaException(KafkaError(code))
    return caught.value


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Moved("a"), "moved"),
        (Fenced("a"), "fenced"),
        (Abortable("a"), "aborted"),
        (Fatal("a"), "failed"),
        (client_error(KafkaError._TIMED_OUT), "timed_out"),  # noqa: SLF001  librdkafka's local code
        (client_error(KafkaError.REQUEST_TIMED_OUT), "timed_out"),
        (client_error(KafkaError.PRODUCER_FENCED), "fenced"),
    ],
)
def test_an_attempt_that_failed_before_its_commit_is_counted_by_its_kind(
    error: TransactionFailed, outcome: str
) -> None:
    counted = Counted()
    counted.attempts.began()
    counted.attempts.failed(error)
    assert counted.counts == {outcome: 1}


def test_an_attempt_fenced_after_its_time_out_was_ended_by_the_broker() -> None:
    counted = Counted(timeout=0.0)
    counted.attempts.began()
    counted.attempts.failed(Fenced("a"))
    assert counted.counts == {"timed_out": 1}


def test_an_attempt_that_was_never_open_cannot_have_timed_out() -> None:
    counted = Counted(timeout=0.0)
    counted.attempts.failed(Fenced("a"))
    assert counted.counts == {"fenced": 1}


def test_an_attempt_that_found_its_recall_out_of_date_says_so_however_long_it_took() -> None:
    assert outcome_of(Moved("a"), timed_out=True) == "moved"


def test_a_confirmed_commit_is_counted_once() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.committed()
    assert counted.attempts.settle(TRIED) is None
    assert counted.counts == {"committed": 1}


def test_an_uncertain_commit_is_not_counted_before_the_log_tells() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(Fatal("no answer"))
    assert counted.counts == {}


def test_an_uncertain_commit_whose_record_is_recalled_happened_and_is_reported() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(Fatal("no answer"))
    assert counted.attempts.settle(TRIED) is COMMIT
    assert counted.attempts.settle(TRIED) is None
    assert counted.counts == {"unknown_committed": 1}


def test_a_recall_of_another_record_alone_settles_nothing_since_it_may_be_out_of_date() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(Fatal("no answer"))
    assert counted.attempts.settle(OLD) is None
    counted.attempts.began()
    counted.attempts.failed(Moved("it was out of date"))
    assert counted.counts == {"moved": 1}
    assert counted.attempts.settle(TRIED) is COMMIT
    assert counted.counts == {"moved": 1, "unknown_committed": 1}


def test_an_uncertain_commit_did_not_happen_once_a_later_compare_has_passed() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(Fatal("no answer"))
    counted.attempts.settle(OLD)
    counted.reach_commit()
    assert counted.counts == {"unknown_not_committed": 1}
    counted.attempts.committed()
    assert counted.counts == {"unknown_not_committed": 1, "committed": 1}


@pytest.mark.parametrize(("error", "outcome"), [(Abortable("a"), "aborted"), (Fenced("a"), "fenced")])
def test_a_commit_that_was_refused_and_did_not_happen_is_counted_by_its_refusal(
    error: TransactionFailed, outcome: str
) -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(error)
    counted.reach_commit()
    assert counted.counts == {outcome: 1}


def test_a_commit_that_seemed_refused_but_is_in_the_log_happened() -> None:
    counted = Counted()
    counted.reach_commit()
    counted.attempts.failed(Fenced("an earlier answer was lost"))
    assert counted.attempts.settle(TRIED) is COMMIT
    assert counted.counts == {"unknown_committed": 1}


def test_every_outcome_can_come_about() -> None:
    counted = Counted()
    timed_out = client_error(KafkaError._TIMED_OUT)  # noqa: SLF001  librdkafka's local code
    for error in (Moved("a"), Fenced("a"), Abortable("a"), Fatal("a"), timed_out):
        counted.attempts.failed(error)
    for _ in range(2):
        counted.reach_commit()
        counted.attempts.failed(Fatal("no answer"))
    counted.attempts.settle(TRIED)
    counted.reach_commit()
    counted.attempts.committed()
    assert counted.counts == dict.fromkeys(map(str, Outcome), 1)
