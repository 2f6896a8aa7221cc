"""A fence asks again at once where a broker said "not yet", and never twice while an answer may be on its way."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pipeline.lanes.fence import FENCE_SECONDS, PATIENT_SECONDS, PROMPT_SECONDS, PROMPT_TRIES, Fence

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_YET = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "not yet", retriable=True)
NO_ANSWER = KafkaError(-185, "timed out", retriable=True)
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading")  # librdkafka does not call it retriable
REFUSED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", fatal=True)


class Clock:
    """A time that stands still unless it is moved."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Broker:
    """Producers whose calls end as told, one after the other, and which note how long each was given."""

    def __init__(self, *ends: KafkaError | None, takes: tuple[Clock, float] | None = None) -> None:
        self._ends = list(ends)
        self.meanwhile: Callable[[], None] = lambda: None
        self._takes = takes
        self.calls: list[tuple[int, float]] = []  # the number of the producer, its time
        self.made = 0
        self.alive: weakref.WeakSet[_Client] = weakref.WeakSet()

    def make(self) -> _Client:
        self.made += 1
        assert not self.alive, "one that is given up must be gone before the next one asks"
        return _Client(self, self.made)

    def answer(self, number: int, seconds: float) -> None:
        self.calls.append((number, round(seconds, 3)))
        self.meanwhile()
        if self._takes:
            clock, lasted = self._takes
            clock.now += lasted
        if (end := self._ends.pop(0)) is not None:
            raise KafkaException(end)


class _Client:
    def __init__(self, broker: Broker, number: int) -> None:
        self.broker, self.number = broker, number
        broker.alive.add(self)

    def init_transactions(self, seconds: float) -> None:
        self.broker.answer(self.number, seconds)


def fenced_by(fence: Fence, broker: Broker) -> int:
    """Return the number of the producer that holds the id in the end."""
    holder: Any = fence.fenced(broker.make)
    return int(holder.number)


def test_an_answer_at_once_is_all_that_is_asked_for() -> None:
    broker = Broker(None)
    assert fenced_by(Fence(Clock()), broker) == 1
    assert broker.calls == [(1, PROMPT_SECONDS)]


def test_a_broker_that_says_not_yet_is_asked_again_by_the_same_producer() -> None:
    broker = Broker(NOT_YET, NOT_YET, None)
    assert fenced_by(Fence(Clock()), broker) == 1
    assert broker.calls == [(1, PROMPT_SECONDS)] * 3
    assert broker.made == 1


def test_one_that_goes_on_saying_so_is_left_to_the_client_in_the_end() -> None:
    broker = Broker(*[NOT_YET] * PROMPT_TRIES, None)
    assert fenced_by(Fence(Clock()), broker) == 1
    assert broker.calls[PROMPT_TRIES:] == [(1, FENCE_SECONDS)]


def test_a_request_that_may_be_on_its_way_is_never_sent_twice_by_one_producer() -> None:
    broker = Broker(NO_ANSWER, NO_ANSWER, NOT_YET, None)
    assert fenced_by(Fence(Clock()), broker) == 3
    assert broker.calls == [(1, 0.1), (2, 0.2), (3, 0.4), (3, 0.4)]


def test_brokers_that_are_far_are_given_all_the_time_they_need() -> None:
    clock = Clock()
    fence = Fence(clock)
    far = Broker(NO_ANSWER, NO_ANSWER, NO_ANSWER, None, None)
    fenced_by(fence, far)
    fenced_by(fence, far)
    assert far.calls[3:] == [(4, FENCE_SECONDS), (5, FENCE_SECONDS)]
    clock.now += PATIENT_SECONDS
    near = Broker(None)
    fenced_by(fence, near)
    assert near.calls == [(1, PROMPT_SECONDS)], "who was slow half a minute ago is tried again"


def test_brokers_that_stay_far_are_not_hurried_again() -> None:
    clock = Clock()
    fence = Fence(clock)
    fenced_by(fence, Broker(NO_ANSWER, NO_ANSWER, NO_ANSWER, None))
    clock.now += PATIENT_SECONDS - 1
    fenced_by(fence, Broker(None, takes=(clock, 0.7)))
    clock.now += PATIENT_SECONDS - 1
    still = Broker(None)
    fenced_by(fence, still)
    assert still.calls == [(1, FENCE_SECONDS)]


def test_several_lanes_that_find_brokers_slow_at_once_find_it_once() -> None:
    fence, others = Fence(Clock()), [Broker(NO_ANSWER, None) for _ in range(3)]

    def meanwhile() -> None:
        if others:
            fenced_by(fence, others.pop())

    for broker in others.copy():
        broker.meanwhile = meanwhile
    mine = Broker(NO_ANSWER, None)
    mine.meanwhile = meanwhile
    fenced_by(fence, mine)
    after = Broker(None)
    fenced_by(fence, after)
    assert after.calls == [(1, 2 * PROMPT_SECONDS)]


def test_what_passes_by_itself_is_waited_for() -> None:
    broker = Broker(LOADING, None)
    assert fenced_by(Fence(Clock()), broker) == 1
    assert broker.calls == [(1, PROMPT_SECONDS), (1, FENCE_SECONDS)]


def test_a_refusal_is_told_at_once() -> None:
    broker = Broker(REFUSED)
    with pytest.raises(KafkaException, match="no"):
        fenced_by(Fence(Clock()), broker)
    assert len(broker.calls) == 1
