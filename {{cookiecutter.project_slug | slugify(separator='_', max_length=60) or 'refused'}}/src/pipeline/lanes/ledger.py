"""The ledger: which records of a lane were already accepted, and the verdict on the next ones.

Guarantee: verdicts depend only on the records judged so far, in offset order, and on the limits: not on how
batches are cut, nor on when the ledger was stored and restored, nor on whether records are judged one by one or many
at a time. An id is called fresh at most once. No Kafka, no Spark.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.cost import name_cost
from pipeline.lanes.recent import Recent, Verdict
from pipeline.lanes.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pipeline.lanes.identity import Identity
    from pipeline.sections import Dedup


class Ledger:
    """Judges the records of one lane, in offset order. Producers that are not asked for stay columns."""

    def __init__(self, limits: Dedup, stored: Columns | Iterable[ProducerState] = ()) -> None:
        """Start empty, where every producer is new, or where `columns()` was taken.

        Lower limits than before take effect with the next fresh id.
        """
        self._limits = limits
        columns = stored if isinstance(stored, Columns) else Columns.of(stored)
        self.take(Standing(_with_hashes(columns, limits.hashes)))

    def take(self, standing: Standing) -> None:
        """Remember this instead of what it did; none has more hashes than the limit."""
        self._stored = standing
        self._cost = standing.cost
        # Stored producers with more than their highest id; each is taken once, since it has no more afterwards.
        self._wide_before = self._stored.wide()
        self._held: dict[str, Recent] = {}
        # Those with a fresh id since, in the order of their last one; `_wide` holds those with more than one id.
        self._order: OrderedDict[str, Recent] = OrderedDict()
        self._wide: OrderedDict[str, Recent] = OrderedDict()
        self._newest: Recent | None = None

    def standing(self) -> Standing:
        """What it remembers, with all producers in columns."""
        if self._held:
            self.take(Standing(self.columns()))
        return self._stored

    @property
    def size_bytes(self) -> int:
        """The cost that `ledger_bytes` bounds: no less than what it adds to the bytes of a lane record."""
        return self._cost

    @property
    def stored(self) -> Columns:
        """What it remembered when it was last in columns."""
        return self._stored.columns

    @property
    def held(self) -> int:
        """How many producers are objects since."""
        return len(self._held)

    @property
    def limits(self) -> Dedup:
        """By which it forgets."""
        return self._limits

    def states(self) -> list[ProducerState]:
        """Return copies, in the order of each producer's last fresh id, oldest first."""
        return list(self.columns())

    def columns(self) -> Columns:
        """All that it remembers, to be stored."""
        if not self._held:
            return self._stored.in_order()
        places = self._stored.places
        kept = [name for name in places if name not in self._order]
        if self._held.keys() >= set(kept):  # all were asked for: nothing is left of what was stored
            return _columns_of({name: self._held[name] for name in (*kept, *self._order)})
        at = {name: len(places) + place for place, name in enumerate(self._held)}
        order = [at.get(name, places[name]) for name in kept] + [at[name] for name in self._order]
        return self._stored.columns.followed_by(_columns_of(self._held)).taken(np.array(order, np.int64))

    def judge(self, identity: Identity, digest: int) -> Verdict:
        """Give the verdict on the next record of the lane, and remember it if it is fresh."""
        name, epoch, txn, seq = identity
        recent = self.recent(name, epoch)
        if epoch != recent.epoch:
            if epoch < recent.epoch:
                return Verdict.OLD_EPOCH
            recent.epoch = epoch
        verdict = recent.judge(txn, seq, digest)
        if verdict is Verdict.FRESH:
            self.charge(recent)
            self.note_fresh(name, recent)
            while self._cost > self._limits.ledger_bytes and (oldest := self._oldest_wide()) is not None:
                oldest.drop_lowest(oldest.count - 1)
                self.charge(oldest)
        return verdict

    def recent(self, name: str, epoch: int) -> Recent:
        """What is known of a producer; of a new one nothing, and its epoch is the record's."""
        recent = self.known(name)
        if recent is None:
            recent = self._held[name] = Recent(self._limits, epoch)
            self._cost += name_cost([name])
        return recent

    def known(self, name: str) -> Recent | None:
        """What is known of a producer, if it is not new."""
        recent = self._held.get(name)
        if recent is None and (place := self._in_order.places.get(name)) is not None:
            recent = self._held[name] = self._stored.restored(place, self._limits)
        return recent

    @property
    def _in_order(self) -> Standing:
        """What was stored, in its order, as all who have objects need it; it has another only before there is one."""
        if (columns := self._stored.in_order()) is not self._stored.columns:
            self.take(Standing(columns))
        return self._stored

    def note_fresh(self, name: str, recent: Recent) -> None:
        """Make a producer the newest, since its id was fresh."""
        if recent is not self._newest:
            self._newest = recent
            self._order[name] = recent
            self._order.move_to_end(name)
            if recent.count > 1:
                self._wide[name] = recent
                self._wide.move_to_end(name)
        elif recent.count > 1 and name not in self._wide:  # many ids at once may have made it wide
            self._wide[name] = recent

    def charge(self, recent: Recent) -> None:
        """Count what a producer costs now; who brings many ids at once knows that nothing is forgotten for it."""
        cost = recent.cost
        self._cost += cost - recent.charged
        recent.charged = cost

    def _oldest_wide(self) -> Recent | None:
        """The producer whose last fresh id is oldest, among those with more than their highest id."""
        for name in self._wide_before:
            if name not in self._order:
                return self.recent(name, 0)
        return self._wide.popitem(last=False)[1] if self._wide else None


def _columns_of(held: dict[str, Recent]) -> Columns:
    """The columns of producers that were asked for."""
    for recent in held.values():
        recent.trim()
    numbers = [(r.epoch, r.floor_txn, r.floor_seq, len(r.txns), len(r.digests)) for r in held.values()]
    flat = (
        np.frombuffer(b"".join(getattr(recent, name) for recent in held.values()), np.int64)
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
