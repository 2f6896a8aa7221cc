"""A fence asks once, and is woken where the client would wait for half a second; never does it ask a second time."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.kafka import wait_until

from pipeline.lanes.fence import FENCE_SECONDS, fenced

TOPIC = "lanes"
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no metadata", retriable=True))  # noqa: SLF001  local code
REFUSED = KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", fatal=True))
ENOUGH_SECONDS = 30.0


class Client:
    """A producer that holds its id once metadata has come so often; each request for some may fail."""

    def __init__(self, needs: int = 0, *, refused: bool = False, failing: bool = False) -> None:
        self.calls: list[float] = []
        self.asked: list[tuple[str, float]] = []
        self._refused, self._failing = refused, failing
        self._needs = threading.Semaphore(0)
        self._missing = needs

    def init_transactions(self, seconds: float) -> None:
        """Wait for metadata."""
        self.calls.append(seconds)
        for _ in range(self._missing):
            assert self._needs.acquire(timeout=ENOUGH_SECONDS), "nobody woke it"
        if self._refused:
            raise REFUSED

    def list_topics(self, topic: str, timeout: float) -> None:
        """Metadata comes, or does not."""
        self.asked.append((topic, timeout))
        self._needs.release()
        if self._failing:
            raise TIMED_OUT


def holder(client: Client) -> Any:
    """Fence it."""
    make: Any = lambda: client  # noqa: E731  a stand-in for a producer
    return fenced(make, TOPIC)


def waiting() -> list[threading.Thread]:
    """Return the threads that would wake a fence."""
    return [thread for thread in threading.enumerate() if thread.name == "fence"]


def test_a_fence_that_is_held_at_once_asks_for_nothing_else() -> None:
    client = Client()
    assert holder(client) is client
    wait_until(lambda: not waiting(), ENOUGH_SECONDS, "over")
    assert client.asked == []
    assert client.calls == [pytest.approx(FENCE_SECONDS, abs=1)]


@pytest.mark.parametrize("failing", [False, True], ids=["metadata", "no metadata"])
def test_a_fence_that_waits_is_woken_ever_more_patiently_and_asks_no_second_time(*, failing: bool) -> None:
    client = Client(needs=4, failing=failing)
    assert holder(client) is client
    assert len(client.calls) == 1, "a second call could fence the producer by itself"
    assert {topic for topic, _ in client.asked} == {TOPIC}
    given = [seconds for _, seconds in client.asked]
    assert given[:4] == [0.02, 0.04, 0.08, 0.16]
    wait_until(lambda: not waiting(), ENOUGH_SECONDS, "over")


def test_a_refusal_is_told_and_ends_the_waking() -> None:
    client = Client(needs=1, refused=True)
    with pytest.raises(KafkaException, match="no"):
        holder(client)
    wait_until(lambda: not waiting(), ENOUGH_SECONDS, "over")
    assert len(client.calls) == 1


def test_nothing_is_kept_of_a_producer_whose_fence_is_over() -> None:
    client = Client(needs=1)
    alive = weakref.ref(client)
    holder(client)
    wait_until(lambda: not waiting(), ENOUGH_SECONDS, "over")
    del client
    assert alive() is None
