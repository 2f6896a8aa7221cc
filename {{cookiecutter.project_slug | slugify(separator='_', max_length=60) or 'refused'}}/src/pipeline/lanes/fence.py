"""Step 1, fence: a fresh producer takes its transactional id, and shuts out whoever held it.

librdkafka asks again only half a second after a question that failed, and two fail in the best of worlds: the one for
the coordinator, where the connection that it went by is closed, since it only served to find the cluster; and the one
for the id, where markers of its last transaction are still being written, which takes milliseconds. Whatever metadata
comes has it look what to ask next, so a fence that waits is sent for some.

Guarantee: no request is sent while another one may be on its way. A call made anew would do that, and raise the epoch
behind the first answer: the producer would be fenced by itself. Metadata does not.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from pipeline.kafka import until_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Producer

# init_transactions waits for the markers of a predecessor that was killed; about 1 s, longer while a leader moves.
FENCE_SECONDS = 60.0
# A fence takes 3 to 10 ms where brokers are near: one that takes longer is woken, and then again after twice the time.
WAKE_SECONDS = 0.02
# After so long librdkafka asks again by itself.
UNASKED_SECONDS = 0.5


def fenced(make: Callable[[], Producer], topic: str) -> Producer:
    """A producer, freshly made, that holds its transactional id. The topic is one that it may describe."""
    producer = make()
    with _woken(producer, topic):
        until_deadline(producer.init_transactions, FENCE_SECONDS)
    return producer


@contextmanager
def _woken(producer: Producer, topic: str) -> Iterator[None]:
    """Send for metadata now and then; one that is asked for last may still come when this is over, to no effect."""
    over = threading.Event()

    def wake() -> None:
        pause = WAKE_SECONDS
        while not over.wait(pause):
            with suppress(KafkaException):
                producer.list_topics(topic, pause)
            pause = min(2 * pause, UNASKED_SECONDS)

    threading.Thread(target=wake, name="fence", daemon=True).start()
    try:
        yield
    finally:
        over.set()
