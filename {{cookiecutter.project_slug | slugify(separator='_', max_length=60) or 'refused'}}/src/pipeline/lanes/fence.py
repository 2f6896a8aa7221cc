"""Step 1, fence: a fresh producer takes its transactional id, and shuts out whoever held it.

A broker that still writes the markers of the id's last transaction answers "not yet". librdkafka then asks again after
half a second, though markers take milliseconds; a call that is made anew has it ask at once.

Guarantee: a call is made anew only once a broker has answered. While a request may be on its way, a second one could
raise the epoch behind its answer, and the producer would be fenced by itself: it is given up, and a fresh one made.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from pipeline.kafka import until_deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

# init_transactions waits for the markers of a predecessor that was killed; about 1 s, longer while a leader moves.
FENCE_SECONDS = 60.0
# A fence takes 5 to 50 ms where brokers are near. One that was answered within the time for a prompt answer has an
# answer to the next request within it as well: a fence is several requests, one after the other.
PROMPT_SECONDS = 0.1
PROMPT_TRIES = 3
# After so long librdkafka asks again by itself.
UNASKED_SECONDS = 0.5
# Brokers that do not answer in time are far, or busy: they are given twice the time from then on, for so long.
PATIENT_SECONDS = 30.0


class Fence:
    """How the producers of one process are fenced; knows how promptly its brokers answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Promptly, until one does not."""
        self._clock = clock
        self._prompt = PROMPT_SECONDS
        self._patient_until = clock()

    def fenced(self, make: Callable[[], Producer]) -> Producer:
        """A producer, freshly made, that holds its transactional id."""
        started = self._clock()
        if started >= self._patient_until:
            self._prompt = PROMPT_SECONDS
        producer, tries = make(), 0
        while (prompt := self._prompt) < UNASKED_SECONDS and tries < PROMPT_TRIES:
            refusal = _refusal(producer, prompt)
            if refusal is None:
                return producer
            if refusal.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                tries += 1
            elif refusal.code() == KafkaError._TIMED_OUT:  # noqa: SLF001  librdkafka's local code
                self._be_patient(2 * prompt)
                del producer  # before the next one asks
                producer = make()
            else:  # a coordinator that loads, or moves: librdkafka goes on asking, if it is given the time
                break
        until_deadline(producer.init_transactions, started + FENCE_SECONDS - self._clock())
        if self._clock() - started > UNASKED_SECONDS:
            self._be_patient(self._prompt)
        return producer

    def _be_patient(self, seconds: float) -> None:
        """Of lanes side by side each may find out by itself that brokers are slow: it is one finding."""
        self._prompt = max(self._prompt, seconds)
        self._patient_until = self._clock() + PATIENT_SECONDS


def _refusal(producer: Producer, seconds: float) -> KafkaError | None:
    """Why it does not hold its id after so many seconds; nothing if it does. What no time would change is raised."""
    try:
        producer.init_transactions(seconds)
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        return error.args[0]
    return None


FENCE = Fence()
