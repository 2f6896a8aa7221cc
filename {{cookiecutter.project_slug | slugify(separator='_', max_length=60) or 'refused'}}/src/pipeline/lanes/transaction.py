"""One fresh producer, one transaction: fence, begin, send, put the lane record last, flush, compare, commit.

Guarantee: what `commit` confirmed is in the log as a whole; what it did not confirm is either there as a whole or
not at all, and the next fence and recall tell which. A producer is never used for a second transaction: librdkafka
lacks KIP-890 part 2, so a delayed EndTxn of an earlier transaction could end a later one of the same producer epoch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from pipeline.address import made
from pipeline.denied import denial
from pipeline.errors import BadSettings, Denied, PipelineError, SafeStop
from pipeline.kafka import Abortable, TransactionFailed, as_kind, mapped, until_deadline, with_room
from pipeline.lanes.fence import fenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

# Beyond the transaction time-out the broker has aborted anyway; the margin covers the answer's way back.
MARGIN_SECONDS = 5.0
ABORT_SECONDS = 10.0
# Each record of a refused batch has its own report; a few of them tell all.
CAUSES_CHARACTERS = 500
# A sent record occupies the queue until its report is served.
SERVE_EVERY = 10_000

Headers = list[tuple[str, bytes | None]]
Sendable = tuple[str, bytes | None, bytes | None, Headers | None]  # topic, key, value, headers


class Moved(TransactionFailed):
    """The lane record landed elsewhere than at the end that recall saw: recall was out of date."""


class Transaction:
    """The only transaction of its own producer."""

    def __init__(self, config: dict[str, Any], *, name_failures: bool = False) -> None:
        """Nothing is connected before the fence. `name_failures` costs a call per record."""
        self._make = partial(made, Producer, config)
        self._producer: Producer
        self._id = config["transactional.id"]
        self._timeout_ms = config["transaction.timeout.ms"]
        self._seconds = self._timeout_ms / 1000 + MARGIN_SECONDS
        self._lane_offset: int | None = None
        self._needs = f"Write on TransactionalId {self._id}"
        self._failures: list[str] = []
        self._denied: Denied | None = None
        self._callback = {"on_delivery": self._note_failure} if name_failures else {}
        self._abortable = False

    def __enter__(self) -> Self:
        """For what is done with it behind the fence."""
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Abandoned, if that failed."""
        if failure is not None:
            self.abandon()

    def fence(self) -> None:
        """Step 1: end whatever an earlier writer left open, and shut it out for good."""
        with mapped(f"fence {self._id}", self._needs):
            try:
                self._producer = fenced(self._make)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    rule = "must be at most the brokers' transaction.max.timeout.ms, which `pipeline doctor` shows"
                    msg = f"transaction.timeout_ms = {self._timeout_ms}: {rule}"
                    raise BadSettings(msg) from error
                raise

    def begin(self) -> None:
        """Open the transaction."""
        with mapped(f"begin {self._id}", self._needs):
            self._producer.begin_transaction()
        self._abortable = True

    def send_all(self, rows: Iterable[Sendable]) -> None:
        """Enqueue output rows or dead letters in order; the partition of each follows from its key."""
        produce, callback = self._producer.produce, self._callback
        for count, (topic, key, value, headers) in enumerate(rows, start=1):
            try:
                if headers:
                    produce(topic, value, key, headers=headers, **callback)
                else:
                    produce(topic, value, key, **callback)
            except BufferError:
                self._with_room(topic, value, key, headers=headers or [], **callback)
            except KafkaException as error:
                self._raise_earlier_failures()
                raise as_kind(error.args[0], f"{self._id}: produce to {topic}", f"Write on Topic {topic}") from error
            if count % SERVE_EVERY == 0:
                with mapped(f"{self._id}: produce"):
                    self._producer.poll(0)

    def put_lane_record(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Enqueue a lane record, behind all that is no lane record: the transaction's only one in that partition."""
        try:
            self._with_room(topic, value, key, partition, on_delivery=self._note_lane_record)
        except TransactionFailed:
            self._raise_earlier_failures()
            raise

    def _with_room(self, topic: str, *record: Any, **options: Any) -> None:
        """Enqueue one record; bounded, so that a dead cluster ends in an error, not in a hang."""
        with mapped(f"{self._id}: produce to {topic}", f"Write on Topic {topic}"):
            with_room(self._producer, self._seconds, topic, *record, **options)

    def flush_and_compare(self, end: int, before: str = "") -> int:
        """Wait for every delivery report, then demand that the lane record stands exactly at `end`; return its offset.

        `before` is the id of the record before it where that is known to be committed, but its marker may be owed: one
        lower is right then if the id is this one's. No marker stands between the two (KAFKA-20734), so the end of this
        transaction decides over both, and only a commit is true to what was confirmed. An abort, by whomever, would
        undo it. Over a record of another id it decides nothing: that marker is waited for, by a recall that reads.
        """
        self.flush()
        return self.compare(self._lane_offset, end, before)

    def flush(self) -> None:
        """Wait for every delivery report."""
        with mapped(f"flush {self._id}", self._needs):
            left = self._producer.flush(self._seconds)
        if self._failures or left:
            raise self._undelivered(left)

    def compare(self, offset: int | None, end: int, before: str) -> int:
        """Demand that a lane record which was delivered at `offset` stands where it must."""
        landed = -1 if offset is None else offset
        if landed > end or (landed == end - 1 and before not in {"", self._id}):
            msg = f"{self._id}: lane record at offset {landed}, expected {end}: recall was out of date"
            raise Moved(msg)
        if landed < end - (before == self._id):
            msg = (
                f"{self._id}: lane record at offset {landed}, expected {end}: the lane topic lost what was "
                f"committed, by an unclean leader election or a restored disk; run `pipeline audit`, restore the topic"
            )
            raise SafeStop(msg)
        return landed

    def commit(self) -> None:
        """Make all of it visible. librdkafka refuses if any delivery report of the transaction was a failure."""
        self._abortable = False
        with mapped(f"commit {self._id}", self._needs):
            until_deadline(self._producer.commit_transaction, self._seconds)

    def abandon(self) -> None:
        """Abort if nothing is uncertain yet. After commit was called only the next fence may decide."""
        if not self._abortable:
            return
        self._abortable = False
        try:
            with mapped(f"abort {self._id}"):
                self._producer.abort_transaction(ABORT_SECONDS)
        except PipelineError:
            # A dead or fenced producer cannot abort; the next fence, or the broker's time-out, does it.
            return

    def _raise_earlier_failures(self) -> None:
        """After a failed delivery librdkafka refuses every further record: then that failure is the cause to name."""
        with mapped(f"{self._id}: produce"):
            self._producer.poll(0)
        if self._failures:
            raise self._undelivered()

    def _undelivered(self, left: int = 0) -> PipelineError:
        if self._denied is not None:
            return self._denied
        causes = "; ".join(dict.fromkeys(self._failures)) or f"{left} records without a report in {self._seconds} s"
        return Abortable(f"{self._id}: not delivered: {causes[:CAUSES_CHARACTERS]}")

    def _note_lane_record(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note_failure(error, message)
        else:
            self._lane_offset = message.offset()

    def _note_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            needs = f"Write on Topic {message.topic()}"
            self._denied = self._denied or denial(error, f"{self._id}: produce to {message.topic()}", needs)
            self._failures.append(f"{message.topic()} [{message.partition()}]: {error.name()}: {error.str()}")
