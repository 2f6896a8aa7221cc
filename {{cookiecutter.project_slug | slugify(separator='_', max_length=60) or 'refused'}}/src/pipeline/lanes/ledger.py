"""The ledger: which records of a lane were already accepted, and the verdict on the next one.

Guarantee: verdicts depend only on the records judged so far, in offset order, and on the limits: not on how
batches are cut, nor on when the ledger was stored and restored. An id is called fresh at most once.
Pure Python, no Kafka, no Spark. Ids are the pair (txn, seq), compared in that order, never packed into one number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.lanes.identity import Identity
    from pipeline.settings import Dedup

# What one producer, one range and one hash may take in a lane record, at most (Avro longs of ten bytes).
PRODUCER_COST = 48
RANGE_COST = 24
HASH_COST = 24
# A list is cut at its front only when this much of it is dead, so that a cut costs nothing per record.
SLACK = 64


class Verdict(StrEnum):
    """What the ledger says of one record."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    STALE = "stale"
    OLD_EPOCH = "old-epoch"
    CONFLICT = "conflict"


# Bound once: reading a member through its enum costs a tenth of a judgement.
_FRESH, _OLD_EPOCH = Verdict.FRESH, Verdict.OLD_EPOCH


class ProducerState(NamedTuple):
    """All that a ledger remembers of one producer; `txns`, `firsts`, `lasts` are the columns of its ranges."""

    producer_id: str
    epoch: int
    floor: tuple[int, int] | None
    txns: list[int]
    firsts: list[int]
    lasts: list[int]
    digests: list[int]


@dataclass(slots=True, eq=False)
class _Producer:
    """Mutable twin of `ProducerState`: ranges before `head`, and digests beyond the last `hashes`, are dead."""

    epoch: int
    floor_txn: int = -1
    floor_seq: int = -1
    top_txn: int = -1
    top_seq: int = -1
    txns: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    # Without ids: the last is of the highest recent id, and so on down; kept only if all above it are.
    digests: list[int] = field(default_factory=list)
    head: int = 0
    count: int = 0


class Ledger:
    """Judges the records of one lane, in offset order."""

    def __init__(self, limits: Dedup) -> None:
        """Start empty: every producer is new."""
        self._recent_ids = limits.recent_ids
        self._hashes = limits.hashes
        self._bytes = limits.ledger_bytes
        self._digest_limit = limits.hashes + (limits.hashes >> 1) + SLACK
        self._cost = 0
        # In the order of their last fresh id, oldest first; `_wide` holds those with more than their highest id.
        self._producers: OrderedDict[str, _Producer] = OrderedDict()
        self._wide: OrderedDict[str, _Producer] = OrderedDict()
        self._newest: _Producer | None = None

    @classmethod
    def restore(cls, limits: Dedup, states: Iterable[ProducerState]) -> Ledger:
        """Continue where `states()` was taken; lower limits than before take effect with the next fresh id."""
        ledger = cls(limits)
        for state in states:
            producer = ledger._newest = ledger._add(state.producer_id, state.epoch)
            producer.floor_txn, producer.floor_seq = state.floor or (-1, -1)
            producer.txns, producer.firsts, producer.lasts = list(state.txns), list(state.firsts), list(state.lasts)
            producer.top_txn, producer.top_seq = state.txns[-1], state.lasts[-1]
            producer.digests = state.digests[-limits.hashes :] if limits.hashes else []
            producer.count = sum(state.lasts) - sum(state.firsts) + len(state.lasts)
            ledger._cost += RANGE_COST * len(state.lasts) + HASH_COST * len(producer.digests)
            if producer.count > 1:
                ledger._wide[state.producer_id] = producer
        return ledger

    @property
    def size_bytes(self) -> int:
        """The cost that `ledger_bytes` bounds: no less than what the ledger takes in a lane record."""
        return self._cost

    def states(self) -> list[ProducerState]:
        """Return copies, in the order of each producer's last fresh id, oldest first."""
        return [
            ProducerState(
                producer_id,
                producer.epoch,
                None if producer.floor_txn < 0 else (producer.floor_txn, producer.floor_seq),
                producer.txns[producer.head :],
                producer.firsts[producer.head :],
                producer.lasts[producer.head :],
                producer.digests[-self._hashes :],
            )
            for producer_id, producer in self._producers.items()
        ]

    def judge(self, identity: Identity, digest: int) -> Verdict:
        """Give the verdict on the next record of the lane, and remember it if it is fresh."""
        producer_id, epoch, txn, seq = identity
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._add(producer_id, epoch)
        elif epoch != producer.epoch:
            if epoch < producer.epoch:
                return _OLD_EPOCH
            producer.epoch = epoch
        if txn == producer.top_txn and seq == producer.top_seq + 1:
            producer.lasts[-1] = seq
        elif txn > producer.top_txn or (txn == producer.top_txn and seq > producer.top_seq):
            producer.txns.append(txn)
            producer.firsts.append(seq)
            producer.lasts.append(seq)
            producer.top_txn = txn
            self._cost += RANGE_COST
        else:
            return self._judge_below(producer_id, producer, txn, seq, digest)
        producer.top_seq = seq
        if self._hashes:
            digests = producer.digests
            digests.append(digest)
            if len(digests) <= self._hashes:
                self._cost += HASH_COST
            elif len(digests) > self._digest_limit:
                del digests[: -self._hashes]
        return self._accept(producer_id, producer)

    def _judge_below(self, producer_id: str, producer: _Producer, txn: int, seq: int, digest: int) -> Verdict:
        """Judge an id that is not above the producer's highest."""
        txns, firsts, lasts = producer.txns, producer.firsts, producer.lasts
        begin = bisect_left(txns, txn, producer.head)
        end = bisect_right(txns, txn, begin)
        at = bisect_right(firsts, seq, begin, end)
        if at > begin and seq <= lasts[at - 1]:
            kept = self._kept_digest(producer, at - 1, seq)
            return Verdict.DUPLICATE if kept is None or kept == digest else Verdict.CONFLICT
        if txn < producer.floor_txn or (txn == producer.floor_txn and seq <= producer.floor_seq):
            return Verdict.STALE
        self._keep_digest(producer, self._ids_from(producer, at), digest)
        joins_left = at > begin and lasts[at - 1] + 1 == seq
        joins_right = at < end and firsts[at] - 1 == seq
        if joins_left and joins_right:
            lasts[at - 1] = lasts.pop(at)
            del txns[at], firsts[at]
            self._cost -= RANGE_COST
        elif joins_left:
            lasts[at - 1] = seq
        elif joins_right:
            firsts[at] = seq
        else:
            txns.insert(at, txn)
            firsts.insert(at, seq)
            lasts.insert(at, seq)
            self._cost += RANGE_COST
        return self._accept(producer_id, producer)

    def _accept(self, producer_id: str, producer: _Producer) -> Verdict:
        """Count one inserted id, make its producer the newest, and keep the limits."""
        producer.count += 1
        if producer is not self._newest:
            self._newest = producer
            self._producers.move_to_end(producer_id)
            if producer.count > 2:  # noqa: PLR2004 - it was wide before this id
                self._wide.move_to_end(producer_id)
        if producer.count > self._recent_ids:
            self._drop_lowest(producer, producer.count - self._recent_ids)
        elif producer.count == 2:  # noqa: PLR2004 - it was not
            self._wide[producer_id] = producer
        while self._cost > self._bytes and self._wide:
            _, oldest = self._wide.popitem(last=False)
            self._drop_lowest(oldest, oldest.count - 1)
        return _FRESH

    def _drop_lowest(self, producer: _Producer, surplus: int) -> None:
        """Forget the `surplus` lowest ids of a producer, fewer than it has; its floor rises to the last of them."""
        producer.count -= surplus
        hashes = min(len(producer.digests), self._hashes)
        if hashes > producer.count:
            del producer.digests[: -producer.count]
            self._cost -= HASH_COST * (hashes - producer.count)
        head, firsts, lasts = producer.head, producer.firsts, producer.lasts
        while surplus:
            dropped = min(surplus, lasts[head] - firsts[head] + 1)
            surplus -= dropped
            producer.floor_txn = producer.txns[head]
            producer.floor_seq = firsts[head] + dropped - 1
            if producer.floor_seq == lasts[head]:
                head += 1
                self._cost -= RANGE_COST
            else:
                firsts[head] += dropped
        producer.head = head
        if head == len(firsts) - 1 or (head > SLACK and head > len(firsts) >> 1):
            del producer.txns[:head], firsts[:head], lasts[:head]
            producer.head = 0

    def _keep_digest(self, producer: _Producer, above: int, digest: int) -> None:
        """Keep the hash of a new id that has `above` ids over it, if all of those have theirs."""
        digests = producer.digests
        if above < self._hashes and above <= len(digests):
            digests.insert(len(digests) - above, digest)
            if len(digests) <= self._hashes:
                self._cost += HASH_COST
            elif len(digests) > self._digest_limit:
                del digests[: -self._hashes]

    def _kept_digest(self, producer: _Producer, at: int, seq: int) -> int | None:
        """Return the hash of a recent id in range `at`, or None when it is not kept."""
        above = self._ids_from(producer, at + 1) + producer.lasts[at] - seq
        return producer.digests[-1 - above] if above < min(len(producer.digests), self._hashes) else None

    def _ids_from(self, producer: _Producer, at: int) -> int:
        """Count the ids in range `at` and above: exactly if fewer than `hashes`, otherwise at least `hashes`."""
        ranges = len(producer.lasts) - at
        return ranges if ranges >= self._hashes else sum(producer.lasts[at:]) - sum(producer.firsts[at:]) + ranges

    def _add(self, producer_id: str, epoch: int) -> _Producer:
        producer = self._producers[producer_id] = _Producer(epoch)
        self._cost += PRODUCER_COST + len(producer_id.encode())
        return producer
