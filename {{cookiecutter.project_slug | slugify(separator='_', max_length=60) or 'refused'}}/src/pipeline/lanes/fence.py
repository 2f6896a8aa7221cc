"""Step 1, fence: a fresh producer takes its transactional id, and shuts out whoever held it.

librdkafka asks again only half a second after a question that failed, and two fail in the best of worlds: the one for
the coordinator, where the connection that it went by is closed, since it only served to find the cluster; and the one
for the id, where markers of its last transaction are still being written, which takes milliseconds. A call that is made
anew has it ask at once.

Guarantee: a question is asked again only once it has failed. While an answer may be on its way a call made anew waits
for it, and no more: a second request would raise the epoch behind the first one's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from pipeline.kafka import until_deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

# init_transactions waits for the markers of a predecessor that was killed; about 1 s, longer while a leader moves.
FENCE_SECONDS = 60.0
# A fence takes 3 to 10 ms where brokers are near: after so long it is called anew, and then after twice the time.
PROMPT_SECONDS = 0.02
# After so long librdkafka asks again by itself.
UNASKED_SECONDS = 0.5


def fenced(make: Callable[[], Producer]) -> Producer:
    """A producer, freshly made, that holds its transactional id."""
    producer = make()
    take_id(producer, FENCE_SECONDS)
    return producer


def take_id(producer: Producer, seconds: float) -> None:
    """Have a producer, that was never used, take its id within this time."""
    patience = PROMPT_SECONDS / 2

    def ask(left: float) -> None:
        nonlocal patience
        patience = min(2 * patience, UNASKED_SECONDS)
        producer.init_transactions(min(patience, left))

    until_deadline(ask, seconds, KafkaError.fatal)
