"""A fence is called anew where the client would wait for half a second, ever more patiently, by one producer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.lanes.fence import FENCE_SECONDS, PROMPT_SECONDS, UNASKED_SECONDS, fenced

NOT_YET = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "not yet", retriable=True)
NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True)  # noqa: SLF001  librdkafka's local code
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading")  # librdkafka does not call it retriable
REFUSED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", fatal=True)


class Clock:
    """A time that stands still unless it is moved."""

    now = 1_000.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


class Client:
    """A producer whose calls end as told, one after the other, each of them at the end of its time if it fails."""

    def __init__(self, clock: Clock, *ends: KafkaError | None) -> None:
        self.calls: list[float] = []
        self._clock, self._ends = clock, list(ends)

    def init_transactions(self, seconds: float) -> None:
        """Fail, or hold the id."""
        self.calls.append(round(seconds, 3))
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        if end is not None:
            self._clock.now += seconds
            raise KafkaException(end)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the time."""
    clock = Clock()
    monkeypatch.setattr("pipeline.kafka.time", clock)
    return clock


def holder(client: Client) -> Any:
    """Fence it."""
    made: list[Any] = [client]
    return fenced(made.pop)  # there is no second one


def test_an_answer_at_once_is_all_that_is_asked_for(clock: Clock) -> None:
    client = Client(clock, None)
    assert holder(client) is client
    assert client.calls == [PROMPT_SECONDS]


@pytest.mark.parametrize("end", [NOT_YET, NO_ANSWER, LOADING], ids=["not yet", "no answer", "loading"])
def test_what_passes_by_itself_is_asked_for_again_by_the_same_producer_ever_more_patiently(
    clock: Clock, end: KafkaError
) -> None:
    client = Client(clock, *[end] * 7, None)
    assert holder(client) is client
    assert client.calls == [0.02, 0.04, 0.08, 0.16, 0.32, UNASKED_SECONDS, UNASKED_SECONDS, UNASKED_SECONDS]


def test_a_fence_that_nobody_answers_ends_in_time_by_what_was_said_last(clock: Clock) -> None:
    begun = clock.now
    with pytest.raises(KafkaException, match="timed out"):
        holder(Client(clock, NOT_YET, NO_ANSWER))
    assert clock.now - begun == pytest.approx(FENCE_SECONDS, abs=0.1)


def test_a_refusal_is_told_at_once(clock: Clock) -> None:
    client = Client(clock, REFUSED)
    with pytest.raises(KafkaException, match="no"):
        holder(client)
    assert len(client.calls) == 1
