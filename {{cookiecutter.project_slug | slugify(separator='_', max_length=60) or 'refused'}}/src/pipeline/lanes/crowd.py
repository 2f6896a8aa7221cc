"""Verdicts on records of many producers at once, in columns, also where the ledger is full and forgets.

Guarantee: exactly the verdicts, and exactly the ledger, that come of asking for each record in its order. A record that
fills a hole below the highest id of its producer is asked for by itself; where there are many, or where it cannot be
told at once what is forgotten, the records from there on are left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.arrivals import arrivals
from pipeline.lanes.columns import Columns
from pipeline.lanes.cost import name_cost
from pipeline.lanes.forgetting import NEVER, Bill, forgotten
from pipeline.lanes.identity import Identity
from pipeline.lanes.pieces import Rise, cut, find, pieces
from pipeline.lanes.recent import CONFLICT, DUPLICATE, FRESH, OLD_EPOCH, PLACES, STALE
from pipeline.lanes.standing import Standing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.stamps import Stamps

# To ask for a record by itself costs as much as so many do where all are asked for so, since all come apart at it. Few
# are asked for at most: each may show another one, since its producer is no longer forgotten.
ALONE = 2_000
MOST_ALONE = 2


def judge(
    ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64], rows: NDArray[np.int64], found: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Judge the records of these rows in their order, as far as it goes; return the rows that are left."""
    alone = min(MOST_ALONE, len(rows) // ALONE)
    while len(rows):
        holes = _judge(ledger, stamps, digests, rows, found)
        if not len(holes):
            return rows[:0]
        end = int(np.searchsorted(rows, holes[0]))
        if len(holes) > alone or (end and len(_judge(ledger, stamps, digests, rows[:end], found))):
            break
        row = int(rows[end])
        name = stamps.names[stamps.producers[row]]
        identity = Identity(name, *(int(column[row]) for column in (stamps.epochs, stamps.txns, stamps.seqs)))
        found[row] = PLACES[ledger.judge(identity, int(digests[row]))]
        rows, alone = rows[end + 1 :], alone - 1
    return rows


def _judge(
    ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64], rows: NDArray[np.int64], found: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Judge all of these rows, or nothing: then return, in their order, those that are at fault."""
    crowd = _Crowd(ledger, stamps, digests, rows)
    falls, holes = crowd.falls()
    if not len(holes):
        came = crowd.came
        found[came.old] = OLD_EPOCH
        found[came.rows[came.rising]] = FRESH
        found[came.rows[~came.rising]] = falls
        ledger.take(crowd.standing())
    return holes


class _Crowd:
    """Records, their producers, and what is left of those after each record."""

    def __init__(self, ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self._before = before = ledger.standing()
        self._stored, self._hashes, self._digests = before.columns, ledger.limits.hashes, digests
        self.came = came = arrivals(self._stored, before.places, stamps, rows)
        up = came.rows[came.rising]
        rise = Rise(came.places[came.rising], came.txns[came.rising], came.seqs[came.rising], digests[up])
        self._whole = whole = pieces(self._stored, rise, len(self._stored) + len(came.new))
        risen = np.zeros(len(digests), np.int64)
        risen[up] = 1
        self._seen = risen.cumsum()
        self._times = self._seen[up] - 1
        names = np.zeros(len(up), np.int64)
        names[whole.first] = [name_cost([name]) for name in came.new]
        bill = Bill(before.cost, before.costs, before.order, names)
        self._left = forgotten(whole, self._times, bill, ledger.limits)

    def standing(self) -> Standing:
        """The ledger after all of them."""
        before, came, whole = self._before, self.came, self._whole
        newest = whole.bounds[1:] - 1
        lowest = self._lowest(newest, NEVER - 1)
        kept = cut(whole, lowest, self._kept_hashes(newest, lowest), before.columns)
        last = np.full(len(newest), -1)
        last[whole.places[whole.risen]] = self._times  # of many, the last one stands
        moved = np.flatnonzero(last >= 0)
        by_time = np.full(len(self._times), -1)
        by_time[last[moved]] = moved
        order = np.concatenate((before.order[last[before.order] < 0], by_time[by_time >= 0]))
        columns = Columns(before.columns.producer_ids + came.new, came.epochs, *kept)
        return Standing(columns, order, None if came.new else before.places)

    def falls(self) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """The verdicts on ids that do not rise, and the rows of those that fill a hole, which have none."""
        came, whole, stored = self.came, self._whole, self._stored
        falls = np.flatnonzero(~came.rising)
        if not len(falls):
            return np.empty(0, np.int8), falls
        places, txns, seqs, rows = came.places[falls], came.txns[falls], came.seqs[falls], came.rows[falls]
        # The newest piece of the producer when the record came.
        before = np.searchsorted(whole.places[whole.risen], places)
        newest = whole.tops[places] + came.rising.cumsum()[falls] - before
        lowest = self._lowest(newest, self._seen[rows])
        ids, there = find(whole, places, txns, seqs)
        kept = there & (ids >= lowest)
        above = whole.ids[newest] - 1 - ids
        hashed = np.flatnonzero(kept & (above < self._kept_hashes(newest, lowest)))
        at = whole.digest_bounds[places[hashed]] + whole.hashed(newest[hashed]) - 1 - above[hashed]
        verdicts = np.where(kept, DUPLICATE, STALE).astype(np.int8)
        verdicts[hashed[whole.digests[at] != self._digests[rows[hashed]]]] = CONFLICT
        floor_txns, floor_seqs = (
            np.append(column, np.full(len(came.new), -1))[places] for column in (stored.floor_txns, stored.floor_seqs)
        )
        stale = (ids < lowest) | (txns < floor_txns) | ((txns == floor_txns) & (seqs <= floor_seqs))
        return verdicts, np.sort(rows[~(kept | stale)])

    def _lowest(self, newest: NDArray[np.int64], seen: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """The lowest id of producers with these newest pieces, after so many ids rose."""
        lost: NDArray[np.bool_] = self._left.when[newest] <= seen
        return np.where(lost, self._whole.ids[newest] - 1, self._left.lowest[newest])

    def _kept_hashes(self, newest: NDArray[np.int64], lowest: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many hashes there are of producers with these newest pieces and lowest ids."""
        hashed = np.minimum(self._whole.hashed(newest), self._hashes)
        kept: NDArray[np.int64] = np.minimum(hashed, self._whole.ids[newest] - lowest)
        return kept
