"""The recent ids of one producer in one lane, with the hashes of the newest of them.

Guarantee: an id is called fresh at most once. Ids are the pair (txn, seq), compared in that order; what was trimmed
lies below a floor, and what lies below the floor is stale. No Kafka, no Spark.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.lanes.cost import HASH_COST, range_cost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pipeline.sections import Dedup

# A column is cut at its front only when this much of it is dead, so that a cut costs nothing per record.
SLACK = 64


class Verdict(StrEnum):
    """What the ledger says of one record."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    STALE = "stale"
    OLD_EPOCH = "old-epoch"
    CONFLICT = "conflict"


# As an array of verdicts holds them.
PLACES = {verdict: place for place, verdict in enumerate(Verdict)}
FRESH, DUPLICATE, STALE, OLD_EPOCH, CONFLICT = PLACES.values()


class Run(NamedTuple):
    """Rising ids, all above the highest one: their ranges in columns, whether the first range goes on from it."""

    txns: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    digests: NDArray[np.int64]  # of each id
    joined: bool
    peaks: int  # so much the highest places of all transactions rise by it


class Recent:
    """Ranges before `head`, and digests beyond the last `hashes`, are dead."""

    __slots__ = (
        "charged",
        "count",
        "digests",
        "epoch",
        "firsts",
        "floor_seq",
        "floor_txn",
        "hashes",
        "head",
        "lasts",
        "most",
        "peaks",
        "top_seq",
        "top_txn",
        "txns",
    )

    def __init__(self, limits: Dedup, epoch: int) -> None:
        """Start without an id."""
        self.epoch = epoch
        self.most = limits.recent_ids
        self.hashes = limits.hashes
        self.floor_txn = self.floor_seq = self.top_txn = self.top_seq = -1
        self.txns = array("q")
        self.firsts = array("q")
        self.lasts = array("q")
        # Without ids: the last is of the highest recent id, and so on down; kept only if all above it are.
        self.digests = array("q")
        self.head = self.count = 0
        # The sum, over all transactions, of the highest place that is kept of each.
        self.peaks = 0
        # What the ledger counts for it, besides its name.
        self.charged = 0

    def restore(self, floor: tuple[int, int], columns: Iterable[bytes], figures: tuple[int, int]) -> Recent:
        """Take over what was stored: the floor, the columns of ranges and hashes, the number of ids, and the peaks."""
        self.floor_txn, self.floor_seq = floor
        self.txns, self.firsts, self.lasts, self.digests = (array("q", column) for column in columns)
        self.top_txn, self.top_seq = self.txns[-1], self.lasts[-1]
        self.count, self.peaks = figures
        self.charged = self.cost
        return self

    @property
    def cost(self) -> int:
        """What its ranges and hashes take in a lane record, at most."""
        ranges = len(self.lasts) - self.head
        if not ranges:
            return 0
        span = self.top_txn - self.txns[self.head]
        return range_cost(ranges, self.count, span, self.peaks) + HASH_COST * min(len(self.digests), self.hashes)

    def judge(self, txn: int, seq: int, digest: int) -> Verdict:
        """Give the verdict on the next id, and remember it if it is fresh."""
        if txn == self.top_txn and seq == self.top_seq + 1:
            self.lasts[-1] = seq
            self.peaks += 1
        elif txn > self.top_txn or (txn == self.top_txn and seq > self.top_seq):
            self.peaks += seq if txn > self.top_txn else seq - self.top_seq
            self.txns.append(txn)
            self.firsts.append(seq)
            self.lasts.append(seq)
            self.top_txn = txn
        else:
            return self._judge_below(txn, seq, digest)
        self.top_seq = seq
        if self.hashes:
            self.digests.append(digest)
        self._accepted(1)
        return Verdict.FRESH

    def extend(self, run: Run, top: tuple[int, int]) -> None:
        """Remember a run of fresh ids, of which `top` is the highest."""
        new = slice(1 if run.joined else 0, None)
        if run.joined:
            self.lasts[-1] = int(run.lasts[0])
        self.txns.frombytes(run.txns[new].tobytes())
        self.firsts.frombytes(run.firsts[new].tobytes())
        self.lasts.frombytes(run.lasts[new].tobytes())
        self.top_txn, self.top_seq = top
        self.peaks += run.peaks
        if self.hashes:
            self.digests.frombytes(run.digests.tobytes())
        self._accepted(len(run.digests))

    def drop_lowest(self, surplus: int) -> None:
        """Forget the `surplus` lowest ids, fewer than there are; the floor rises to the last of them."""
        self.count -= surplus
        if len(self.digests) > self.count:
            del self.digests[: -self.count]
        head, firsts, lasts = self.head, self.firsts, self.lasts
        if firsts[head : head + surplus] == lasts[head : head + surplus]:  # each alone in its range
            head += surplus
            self.floor_txn, self.floor_seq = self.txns[head - 1], lasts[head - 1]
            surplus = 0
        while surplus:
            dropped = min(surplus, lasts[head] - firsts[head] + 1)
            surplus -= dropped
            self.floor_txn = self.txns[head]
            self.floor_seq = firsts[head] + dropped - 1
            if self.floor_seq == lasts[head]:
                head += 1
            else:
                firsts[head] += dropped
        self.peaks -= self._peaks(self.head, head)
        self.head = head
        if head == len(firsts) - 1 or (head > SLACK and head > len(firsts) >> 1):
            self.trim()

    def trim(self) -> None:
        """Cut off what is dead."""
        del self.txns[: self.head], self.firsts[: self.head], self.lasts[: self.head]
        self.head = 0
        del self.digests[: max(len(self.digests) - self.hashes, 0)]

    def _accepted(self, ids: int) -> None:
        """Count inserted ids, and keep the limits."""
        self.count += ids
        if len(self.digests) > self.hashes + (self.hashes >> 1) + SLACK:
            del self.digests[: -self.hashes]
        if self.count > self.most:
            self.drop_lowest(self.count - self.most)

    def _judge_below(self, txn: int, seq: int, digest: int) -> Verdict:
        """Judge an id that is not above the highest."""
        txns, firsts, lasts = self.txns, self.firsts, self.lasts
        begin = bisect_left(txns, txn, self.head)
        end = bisect_right(txns, txn, begin)
        at = bisect_right(firsts, seq, begin, end)
        if at > begin and seq <= lasts[at - 1]:
            kept = self._kept_digest(at - 1, seq)
            return Verdict.DUPLICATE if kept is None or kept == digest else Verdict.CONFLICT
        if txn < self.floor_txn or (txn == self.floor_txn and seq <= self.floor_seq):
            return Verdict.STALE
        if at == end:  # none above it in its transaction
            self.peaks += seq - (lasts[at - 1] if at > begin else 0)
        above = self._ids_from(at)
        if above < self.hashes and above <= len(self.digests):  # all above have theirs
            self.digests.insert(len(self.digests) - above, digest)
        joins_left = at > begin and lasts[at - 1] + 1 == seq
        joins_right = at < end and firsts[at] - 1 == seq
        if joins_left and joins_right:
            lasts[at - 1] = lasts.pop(at)
            del txns[at], firsts[at]
        elif joins_left:
            lasts[at - 1] = seq
        elif joins_right:
            firsts[at] = seq
        else:
            txns.insert(at, txn)
            firsts.insert(at, seq)
            lasts.insert(at, seq)
        self._accepted(1)
        return Verdict.FRESH

    def _kept_digest(self, at: int, seq: int) -> int | None:
        """Return the hash of a recent id in range `at`, or None when it is not kept."""
        above = self._ids_from(at + 1) + self.lasts[at] - seq
        return self.digests[-1 - above] if above < min(len(self.digests), self.hashes) else None

    def _peaks(self, start: int, end: int) -> int:
        """The highest places of the transactions that end with one of these ranges; another range follows them."""
        if end - start <= 1:
            return self.lasts[start] if end > start and self.txns[start] != self.txns[end] else 0
        txns = np.frombuffer(self.txns, np.int64)
        lasts = np.frombuffer(self.lasts, np.int64)
        return int(lasts[start:end][txns[start:end] != txns[start + 1 : end + 1]].sum())

    def _ids_from(self, at: int) -> int:
        """Count the ids in range `at` and above: exactly if fewer than `hashes`, otherwise at least `hashes`."""
        ranges = len(self.lasts) - at
        return ranges if ranges >= self.hashes else sum(self.lasts[at:]) - sum(self.firsts[at:]) + ranges
