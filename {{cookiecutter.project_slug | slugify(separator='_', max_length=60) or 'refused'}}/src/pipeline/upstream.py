"""StampedProducer: for upstream code that stamps its records, so that the lanes know a second copy of one.

Guarantee: a transaction is in the topic as a whole or not at all. Numbers rise from transaction to transaction and over
restarts; a number that failed is used again before any later one, and what may have been committed is never
sent under another number. Of two instances with one producer id only one goes on, and the other says so.

Rows stay in memory until the `with` block ends, and only then are sent: so an uncertain commit can be repeated, and a
slow caller meets no transaction time-out. Not for use from several threads.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pipeline.errors import PipelineError, SafeStop
from pipeline.kafka import Fatal, Fenced, TransactionFailed
from pipeline.lanes.identity import Identity, headers
from pipeline.sections import Identity as Names
from pipeline.upstream_attempt import Attempt, attempt_config
from pipeline.upstream_log import OwnLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.upstream_attempt import Header, Row

# Commits of one transaction that ended uncertain and turned out undone; more means a sick cluster.
ATTEMPTS = 3
# Between a commit and the next fence another instance can take over unnoticed. If that took longer than this, the topic
# is asked; and a new instance writes nothing for as long. So of two instances one always learns of the other.
BLIND_SECONDS = 1.0


class Position(NamedTuple):
    """Where the numbering stands: the epoch of the last start, the number of the next transaction."""

    epoch: int
    next_txn: int


class StampedTransaction:
    """The rows of one transaction, in order."""

    def __init__(self, names: Names) -> None:
        """Start without rows."""
        self._reserved = {names.producer_id, names.producer_epoch, names.txn_id, names.seq}
        self._ended = False
        self.rows: list[Row] = []

    def send(self, key: bytes, value: bytes | None, headers: Iterable[Header] = ()) -> None:
        """Add a row; it is sent when the `with` block ends."""
        if self._ended:
            msg = "this transaction has ended; open the next one with `with producer.transaction()`"
            raise PipelineError(msg)
        if not key:
            msg = "a record without a key has no fixed partition, so a re-send would not be known; give it a key"
            raise PipelineError(msg)
        own = list(headers)
        for name, _ in own:
            if name in self._reserved:
                msg = f"header {name!r} belongs to the stamp; choose another name"
                raise PipelineError(msg)
        self.rows.append((key, value, own))

    def end(self) -> None:
        """Accept no more rows."""
        self._ended = True


class StampedProducer:
    """Writes stamped records to one topic, in numbered transactions."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        producer_id: str,
        *,
        names: Names | None = None,
        position: Position | None = None,
    ) -> None:
        """Fence earlier instances, then continue after the caller's stored position, or the last committed stamps.

        A caller that stores the position must cut its transactions again as it cut them before. Without a position the
        topic is read back; for an id that never wrote there that is all of it, so start it with `Position(0, 0)`.
        """
        self._topic, self._producer_id, self._names = topic, producer_id, names or Names()
        self._config = attempt_config(config, topic, producer_id)
        self._log = OwnLog(config, topic, producer_id, self._names)
        self._ended: TransactionFailed | None = None
        self._open = False
        self._loose_since = time.monotonic()
        self._held: Attempt | None = self._fence()
        self._silent_until = time.monotonic() + BLIND_SECONDS
        # For each partition the offset below which all records of this producer id are known.
        self._epoch, self._next_txn, self._known = self._start(position)

    @property
    def position(self) -> Position:
        """For the caller's durable store, together with what was sent up to here."""
        return Position(self._epoch, self._next_txn)

    @property
    def last_committed(self) -> int | None:
        """The number of the last committed transaction; None before the first."""
        return self._next_txn - 1 if self._next_txn else None

    @contextmanager
    def transaction(self) -> Iterator[StampedTransaction]:
        """Commit what is sent within the block as one transaction; an exception in it sends nothing."""
        if self._ended is not None:
            raise type(self._ended)(*self._ended.args)
        if self._open:
            msg = "a transaction is open already; they follow each other, they do not nest"
            raise PipelineError(msg)
        transaction = StampedTransaction(self._names)
        self._open = True
        try:
            yield transaction
        finally:
            self._open = False
            transaction.end()
        if transaction.rows:
            self._write(transaction.rows)

    def _start(self, position: Position | None) -> tuple[int, int, dict[int, int]]:
        if position is not None:
            return position.epoch + 1, position.next_txn, self._log.bounds()[1]
        look = self._log.newest({})
        if look.stamps:
            stamps = look.stamps.values()
            return max(stamp.epoch for stamp in stamps) + 1, max(stamp.txn for stamp in stamps) + 1, look.ends
        if any(look.starts.values()):
            msg = (
                f"{self._topic}: no record of producer {self._producer_id!r}, but older records were deleted, perhaps "
                "its own; give the position that it had reached, or Position(0, 0) if it never wrote to this topic"
            )
            raise SafeStop(msg)
        return 0, 0, look.ends

    def _write(self, rows: list[Row]) -> None:
        """Send the rows under the next number until they are surely committed."""
        time.sleep(max(0.0, self._silent_until - time.monotonic()))
        for _ in range(ATTEMPTS):
            delivered = self._deliver(rows)
            if delivered is not None:
                self._known |= {partition: offset + 1 for partition, offset in delivered.items()}
                self._next_txn += 1
            self._ended = None
            if delivered is not None:
                self._hold_if_possible()
                return
        self._end(Fatal, f"{ATTEMPTS} commits of transaction {self._next_txn} failed; it is not committed")

    def _deliver(self, rows: list[Row]) -> dict[int, int] | None:
        """Try once; return the last offset in each partition, or None if surely nothing was committed."""
        attempt, self._held = self._hold(), None
        try:
            delivered = attempt.send(self._topic, self._stamped(rows))
        except BaseException as error:
            self._loose_since = time.monotonic()
            # The client may lose the word of what failed in `send`, but not that it is shut out.
            if attempt.abort() or isinstance(error, Fenced):
                self._end(Fenced, f"fenced, transaction {self._next_txn} is not committed", error)
            self._hold_if_possible()
            raise
        # Stands from here until the outcome is sure: whatever interrupts, no other rows get this number.
        self._ended = self._last_words(Fatal, f"interrupted, transaction {self._next_txn} may be committed or not")
        self._loose_since = time.monotonic()
        try:
            attempt.commit()
        except TransactionFailed as error:
            return delivered if self._settle(delivered, error) else None
        return delivered

    def _settle(self, delivered: dict[int, int], cause: TransactionFailed) -> bool:
        """Tell whether an uncertain commit happened: a new fence, then the topic says. Nothing is aborted before."""
        doubt = f"transaction {self._next_txn} may be committed or not"
        if isinstance(cause, Fenced):
            self._end(Fenced, f"fenced in a commit, {doubt}", cause)
        try:
            attempt = self._fence()
            committed = self._look(delivered)
        except Fenced:
            raise
        except PipelineError as failure:
            self._end(Fatal, f"{doubt}: {failure}", cause)
        self._held = attempt
        return committed

    def _hold(self) -> Attempt:
        """Return the fenced producer of the next transaction: while it is held, whoever takes over shuts it out."""
        if self._held is None:
            attempt = self._fence()
            if time.monotonic() - self._loose_since > BLIND_SECONDS:
                self._look({})
            self._held = attempt
        return self._held

    def _hold_if_possible(self) -> None:
        """Fence at once; if that fails the transaction before it stands nevertheless, and the next one will say why."""
        with suppress(PipelineError):
            self._hold()

    def _fence(self) -> Attempt:
        attempt = Attempt(self._config)
        attempt.fence()
        return attempt

    def _look(self, delivered: Mapping[int, int]) -> bool:
        """Read what was committed under this name since the last look: True if it is `delivered`."""
        look = self._log.newest(self._known)
        for partition, stamp in look.stamps.items():
            if delivered.get(partition) != stamp.offset:
                self._end(Fenced, f"offset {stamp.offset} of partition {partition} is not from this instance")
        self._known = look.ends
        return bool(look.stamps)

    def _end(self, kind: type[TransactionFailed], what: str, cause: BaseException | None = None) -> NoReturn:
        self._ended = self._last_words(kind, what)
        raise self._ended from cause

    def _last_words(self, kind: type[TransactionFailed], what: str) -> TransactionFailed:
        fenced = "another one with this id is at work, or it outlived transaction.timeout.ms; let only one run"
        other = "start a new StampedProducer, its last_committed tells where to go on"
        remedy = fenced if kind is Fenced else other
        return kind(f"stamped producer {self._producer_id!r} of {self._topic}: {what}; {remedy}")

    def _stamped(self, rows: list[Row]) -> Iterator[Row]:
        for seq, (key, value, own) in enumerate(rows):
            identity = Identity(self._producer_id, self._epoch, self._next_txn, seq)
            yield key, value, [*own, *headers(identity, self._names)]
