"""Sends the workload of `payments.py` to a topic, in Kafka transactions, as fast as one process can.

Guarantee: a batch is committed or aborted as planned before the next one begins; an error ends the sending.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from pipeline.errors import PipelineError
from pipeline.kafka import REQUEST_SECONDS, reachable
from pipeline.local.payments import Kind, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.local.payments import Batch

# Names to rotate through: a name is fenced again only long after its last commit, so no start waits for markers.
TRANSACTIONAL_IDS = 8
COMMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Summary:
    """What was sent: `sent` counts committed records, `kinds` also those of aborted transactions."""

    sent: int
    kinds: Mapping[str, int]


def send(  # noqa: PLR0913  all by name
    bootstrap: str,
    topic: str,
    *,
    count: int = 200_000,
    seed: int = 1,
    form: str = "json",
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Send `count` payments of a format, and the faults on top, to an existing topic.

    `progress` gets (payments sent, count).
    """
    _check_topic(bootstrap, topic)
    kinds: Counter[str] = Counter()
    for number, batch in enumerate(plan(count, seed=seed, form=form)):
        with reachable(bootstrap, f"send payments to {topic}"):
            _send_batch(bootstrap, topic, f"events-{topic}-{seed}-{number % TRANSACTIONAL_IDS}", batch)
        kinds.update(event.kind.value for event in batch.events)
        if progress is not None:
            progress(kinds[Kind.PAYMENT], count)
    return Summary(sent=kinds.total() - kinds[Kind.ABORTED], kinds=dict(kinds))


def _check_topic(bootstrap: str, topic: str) -> None:
    # A producer would wait minutes for a topic that is not there.
    with reachable(bootstrap, f"look for {topic}"):
        known = Producer({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=REQUEST_SECONDS).topics
    if topic not in known or known[topic].error is not None:
        msg = f"{topic}: no such topic on {bootstrap}; create it first"
        raise PipelineError(msg)


def _send_batch(bootstrap: str, topic: str, transactional_id: str, batch: Batch) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(COMMIT_SECONDS * 1000),
            # librdkafka connects lazily and then waits on timers, up to half a second for each fresh producer.
            "enable.sparse.connections": False,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    producer.init_transactions(COMMIT_SECONDS)
    producer.begin_transaction()
    for event in batch.events:
        producer.produce(topic, event.value, event.key, headers=event.headers)
    if batch.commit:
        # Refused if any record of the transaction was not delivered.
        producer.commit_transaction(COMMIT_SECONDS)
    else:
        # What is aborted must first have reached the log, or there would be nothing for readers to pass over.
        producer.flush(COMMIT_SECONDS)
        producer.abort_transaction(COMMIT_SECONDS)
