"""The ledger: which records of a lane were already accepted, and the verdict on the next ones.

Guarantee: verdicts depend only on the records judged so far, in offset order, and on the limits: not on how
batches are cut, nor on when the ledger was stored and restored, nor on whether records are judged one by one or many
at a time. An id is called fresh at most once. No Kafka, no Spark.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.recent import HASH_COST, RANGE_COST, Recent, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pipeline.lanes.identity import Identity
    from pipeline.sections import Dedup

# What one producer may take in a lane record, at most, beside its name.
PRODUCER_COST = 48


class Ledger:
    """Judges the records of one lane, in offset order. Producers that are not asked for stay columns."""

    def __init__(self, limits: Dedup, stored: Columns | Iterable[ProducerState] = ()) -> None:
        """Start empty, where every producer is new, or where `columns()` was taken.

        Lower limits than before take effect with the next fresh id.
        """
        self._limits = limits
        self._stored = _with_hashes(stored if isinstance(stored, Columns) else Columns.of(stored), limits.hashes)
        self._places = {name: place for place, name in enumerate(self._stored.producer_ids)}
        self._bounds = [
            np.append(0, counts.cumsum()) for counts in (self._stored.range_counts, self._stored.digest_counts)
        ]
        self._cost = cost(self._stored)
        self._held: dict[str, Recent] = {}
        # Those with a fresh id since, in the order of their last one; `_wide` holds those with more than one id.
        self._order: OrderedDict[str, Recent] = OrderedDict()
        self._wide: OrderedDict[str, Recent] = OrderedDict()
        self._newest: Recent | None = None

    @property
    def size_bytes(self) -> int:
        """The cost that `ledger_bytes` bounds: no less than what the ledger takes in a lane record."""
        return self._cost

    @property
    def limits(self) -> Dedup:
        """By which it forgets."""
        return self._limits

    def states(self) -> list[ProducerState]:
        """Return copies, in the order of each producer's last fresh id, oldest first."""
        return list(self.columns())

    def columns(self) -> Columns:
        """All that it remembers, to be stored."""
        held = _columns_of(self._held)
        at = {name: len(self._stored) + place for place, name in enumerate(self._held)}
        kept = [at.get(name, place) for name, place in self._places.items() if name not in self._order]
        places = np.array(kept + [at[name] for name in self._order], np.int64)
        return self._stored.followed_by(held).taken(places)

    def judge(self, identity: Identity, digest: int) -> Verdict:
        """Give the verdict on the next record of the lane, and remember it if it is fresh."""
        name, epoch, txn, seq = identity
        recent = self.recent(name, epoch)
        if epoch != recent.epoch:
            if epoch < recent.epoch:
                return Verdict.OLD_EPOCH
            recent.epoch = epoch
        before = recent.cost
        verdict = recent.judge(txn, seq, digest)
        if verdict is Verdict.FRESH:
            self._cost += recent.cost - before
            self.note_fresh(name, recent)
            while self._cost > self._limits.ledger_bytes and (oldest := self._oldest_wide()) is not None:
                before = oldest.cost
                oldest.drop_lowest(oldest.count - 1)
                self._cost += oldest.cost - before
        return verdict

    def recent(self, name: str, epoch: int) -> Recent:
        """What is known of a producer; of a new one nothing, and its epoch is the record's."""
        recent = self._held.get(name)
        if recent is None:
            place = self._places.get(name)
            if place is None:
                recent = Recent(self._limits, epoch)
                self._cost += PRODUCER_COST + len(name.encode())
            else:
                recent = self._restored(place)
            self._held[name] = recent
        return recent

    def _restored(self, place: int) -> Recent:
        stored, (ranges, digests) = self._stored, self._bounds
        rows = slice(ranges[place], ranges[place + 1])
        return Recent(self._limits, int(stored.epochs[place])).restore(
            (int(stored.floor_txns[place]), int(stored.floor_seqs[place])),
            (stored.txns[rows], stored.firsts[rows], stored.lasts[rows]),
            stored.digests[digests[place] : digests[place + 1]],
        )

    def note_fresh(self, name: str, recent: Recent) -> None:
        """Make a producer the newest, since its id was fresh."""
        if recent is not self._newest:
            self._newest = recent
            self._order[name] = recent
            self._order.move_to_end(name)
            if recent.count > 1:
                self._wide[name] = recent
                self._wide.move_to_end(name)
        elif recent.count == 2:  # noqa: PLR2004  it was not wide before this id
            self._wide[name] = recent

    def note_cost(self, more: int) -> None:
        """Count what many ids at once have cost; whoever brings them knows that nothing is forgotten for it."""
        self._cost += more

    def known(self, name: str) -> tuple[int, int] | None:
        """How many ranges and hashes are kept of a producer; nothing if it is new."""
        recent, place = self._held.get(name), self._places.get(name)
        if recent is not None:
            return len(recent.lasts) - recent.head, min(len(recent.digests), self._limits.hashes)
        if place is None:
            return None
        return int(self._stored.range_counts[place]), int(self._stored.digest_counts[place])

    def _oldest_wide(self) -> Recent | None:
        """The producer whose last fresh id is oldest, among those with more than their highest id."""
        for name in self._wide_before:
            if name not in self._order:
                return self.recent(name, 0)
        return self._wide.popitem(last=False)[1] if self._wide else None

    @cached_property
    def _wide_before(self) -> Iterator[str]:
        """Stored producers with more than their highest id; each is asked for once, since it has no more afterwards."""
        stored = self._stored
        if not len(stored):
            return iter(())
        ids = np.add.reduceat(stored.lasts - stored.firsts + 1, self._bounds[0][:-1])
        return iter([stored.producer_ids[place] for place in np.flatnonzero(ids > 1)])


def cost(columns: Columns) -> int:
    """What columns take in a lane record, at most."""
    names = sum(map(len, map(str.encode, columns.producer_ids)))
    return PRODUCER_COST * len(columns) + names + RANGE_COST * len(columns.txns) + HASH_COST * len(columns.digests)


def _columns_of(held: dict[str, Recent]) -> Columns:
    """The columns of producers that were asked for."""
    for recent in held.values():
        recent.trim()
    numbers = [(r.epoch, r.floor_txn, r.floor_seq, len(r.txns), len(r.digests)) for r in held.values()]
    flat = (
        np.frombuffer(b"".join(getattr(recent, name).tobytes() for recent in held.values()), np.int64)
        for name in ("txns", "firsts", "lasts", "digests")
    )
    return Columns(list(held), *np.array(numbers, np.int64).reshape(-1, 5).T, *flat)


def _with_hashes(columns: Columns, most: int) -> Columns:
    """Without the hashes of lower ids, if fewer are kept than before."""
    if not (columns.digest_counts > most).any():
        return columns
    counts: NDArray[np.int64] = np.minimum(columns.digest_counts, most)
    places = np.arange(len(columns.digests))
    ends = np.repeat(columns.digest_counts.cumsum(), columns.digest_counts)
    kept = places >= ends - np.repeat(counts, columns.digest_counts)
    numbers = {name: getattr(columns, name) for name in columns.__slots__}
    return Columns(**numbers | {"digest_counts": counts, "digests": columns.digests[kept]})
