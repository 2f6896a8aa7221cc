"""One fresh producer and its one transaction, as the upstream side sends it.

Guarantee: `send` returns only when every record of the transaction was delivered, and says where. A producer is never
used again: librdkafka lacks KIP-890 part 2, a delayed EndTxn could end a later transaction of the same producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from pipeline.errors import BadSettings
from pipeline.kafka import COMMON, FENCED_CODES, Abortable, mapped, until_deadline, with_room
from pipeline.lanes.fence import FENCE_SECONDS, take_id
from pipeline.lanes.identity import MAX_PRODUCER_ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import KafkaError, Message

Header = tuple[str, bytes | None]
Row = tuple[bytes, bytes | None, list[Header]]

TIMEOUT_MS = 60_000
FIXED = {
    "enable.sparse.connections": False,  # librdkafka's lazy connecting costs half a second for each fresh producer
    "enable.idempotence": True,
    # Java's rule: a key must come to the same partition again, whichever client re-sends it.
    "partitioner": "murmur2",
}
# Beyond the transaction time-out the broker has aborted anyway; the margin covers the answer's way back.
MARGIN_SECONDS = 5.0
ABORT_SECONDS = 10.0
# A sent record occupies the queue until its report is served.
SERVE_EVERY = 1_000


def attempt_config(config: Mapping[str, Any], topic: str, producer_id: str) -> dict[str, Any]:
    """Complete the caller's client configuration; what the guarantee rests on is not the caller's to set."""
    taken = sorted({"transactional.id", *FIXED} & set(config))
    if taken:
        msg = f"{taken[0]}: set by StampedProducer itself; leave it out of the configuration"
        raise BadSettings(msg)
    if not 0 < len(producer_id.encode()) <= MAX_PRODUCER_ID_BYTES:
        msg = f"producer id {producer_id!r}: must have 1 to {MAX_PRODUCER_ID_BYTES} bytes"
        raise BadSettings(msg)
    timeout = config.get("transaction.timeout.ms", TIMEOUT_MS)
    return {
        "transaction.timeout.ms": timeout,
        # Must not outlive the transaction: a record delivered later would belong to nothing.
        "message.timeout.ms": timeout,
        **COMMON,
        **config,
        **FIXED,
        # No topic name holds a slash, so no two producers of two topics get one name.
        "transactional.id": f"stamped/{topic}/{producer_id}",
    }


class Attempt:
    """A producer that is good for one transaction."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Create the producer; it connects in the background."""
        self._producer = Producer(config)
        self._id = config["transactional.id"]
        self._seconds = config["transaction.timeout.ms"] / 1000 + MARGIN_SECONDS
        self._failures: list[str] = []
        self._delivered: dict[int, int] = {}

    def fence(self) -> None:
        """End what an earlier producer of this name left open, and shut it out."""
        with mapped(f"fence {self._id}"):
            take_id(self._producer, FENCE_SECONDS)

    def send(self, topic: str, rows: Iterable[Row]) -> dict[int, int]:
        """Deliver all rows in a new transaction, or fail; return the last offset in each partition."""
        with mapped(f"{self._id}: send to {topic}"):
            self._producer.begin_transaction()
            for count, (key, value, headers) in enumerate(rows, start=1):
                options = {"headers": headers, "on_delivery": self._note}
                with_room(self._producer, self._seconds, topic, value, key, **options)
                if count % SERVE_EVERY == 0:
                    self._producer.poll(0)
            left = self._producer.flush(self._seconds)
        if self._failures or left:
            causes = "; ".join(self._failures[:3]) or f"{left} records without a delivery report in {self._seconds} s"
            msg = f"{self._id}: not delivered, the transaction is aborted: {causes}"
            raise Abortable(msg)
        return self._delivered

    def commit(self) -> None:
        """Commit; any error of this call leaves the outcome uncertain."""
        with mapped(f"commit {self._id}"):
            until_deadline(self._producer.commit_transaction, self._seconds)

    def abort(self) -> bool:
        """Abort what was sent; never after `commit` was called. True if another of this name shut this one out.

        A dead or fenced producer cannot abort; the next fence does it.
        """
        try:
            self._producer.abort_transaction(ABORT_SECONDS)
        except KafkaException as error:
            return error.args[0].code() in FENCED_CODES
        return False

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._delivered[message.partition()] = message.offset()
        else:
            self._failures.append(f"{message.topic()} [{message.partition()}]: {error.name()}: {error.str()}")
