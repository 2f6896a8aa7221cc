"""What a ledger knows of its producers and the ids that came since and rise, as one: pieces of ranges, in columns.

Guarantee: the pieces of a producer rise, so that what follows from its lowest id and its highest one alone (counts,
spans, cost) is the difference of two sums, and `cut` makes columns of them as they would be stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.lanes.columns import bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.columns import Columns


class Rise(NamedTuple):
    """Ids that rise, by place of the producer; those of new producers stand behind all that are stored."""

    places: NDArray[np.int64]
    txns: NDArray[np.int64]
    seqs: NDArray[np.int64]
    digests: NDArray[np.int64]


class Pieces(NamedTuple):
    """Stored ranges, and each risen id by itself behind those of its producer; sums run over all of them."""

    places: NDArray[np.int64]
    txns: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    bounds: NDArray[np.int64]  # where the pieces of each producer begin, and where the last end
    tops: NDArray[np.int64]  # newest of each producer before any id rose; of a new one, what stands before its first
    risen: NDArray[np.int64]  # which pieces are risen ids
    first: NDArray[np.bool_]  # which of these are the first of new producers
    starts: NDArray[np.int64]  # ids before those of each producer
    ids: NDArray[np.int64]  # summed to its last id
    ranges: NDArray[np.int64]  # summed to its own; a piece that goes on from the one before is none
    peaks: NDArray[np.int64]  # the highest places in each transaction, summed to its own
    digests: NDArray[np.int64]
    digest_bounds: NDArray[np.int64]  # where the digests of each producer begin, and where the last end

    def hashed(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many digests there are of producers with these newest pieces: a risen id, or what was before them all."""
        places = self.places[at]
        counts: NDArray[np.int64] = np.diff(self.digest_bounds)[places] - (self.bounds[places + 1] - 1 - at)
        return counts


def pieces(stored: Columns, rise: Rise, producers: int) -> Pieces:
    """Put ids behind the ranges of their producers, of which there are so many with the new ones."""
    added = np.bincount(rise.places, minlength=producers)
    none = np.zeros(producers - len(stored), np.int64)
    ranges, hashes = (np.append(counts, none) for counts in (stored.range_counts, stored.digest_counts))
    at_old, at_new = _merged(ranges, added, rise.places)
    txns, firsts, lasts = (
        _placed((at_old, old), (at_new, new))
        for old, new in ((stored.txns, rise.txns), (stored.firsts, rise.seqs), (stored.lasts, rise.seqs))
    )
    digests = _placed(*zip(_merged(hashes, added, rise.places), (stored.digests, rise.digests), strict=True))
    begins = bounds(ranges + added)
    same_txn = np.zeros(len(txns), bool)
    same_txn[1:] = txns[1:] == txns[:-1]
    same_txn[begins[:-1]] = False
    previous = np.roll(lasts, 1)
    ids = (lasts - firsts + 1).cumsum()
    return Pieces(
        np.repeat(np.arange(producers), ranges + added),
        txns,
        firsts,
        lasts,
        begins,
        begins[1:] - 1 - added,
        at_new,
        at_new == begins[rise.places],
        np.append(0, ids[begins[1:-1] - 1]),
        ids,
        (~(same_txn & (firsts == previous + 1))).cumsum(),
        (lasts - np.where(same_txn, previous, 0)).cumsum(),
        digests,
        bounds(hashes + added),
    )


def find(
    whole: Pieces, places: NDArray[np.int64], txns: NDArray[np.int64], seqs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many ids stand before these, counted as `ids` does, and which of these are there themselves."""
    asked = np.zeros(len(whole.bounds) - 1, bool)
    asked[places] = True
    some = np.flatnonzero(asked[whole.places])
    keys = (
        np.repeat([0, 1], [len(some), len(places)]),  # an id stands behind the piece that begins with it
        np.concatenate((whole.firsts[some], seqs)),
        np.concatenate((whole.txns[some], txns)),
        np.concatenate((whole.places[some], places)),
    )
    order = np.lexsort(keys)
    last = np.empty(len(order), np.int64)
    last[order] = np.maximum.accumulate(np.where(order < len(some), order, -1))
    last = last[len(some) :]
    at = some[last]
    behind = (last >= 0) & (whole.places[at] == places)
    there = behind & (whole.txns[at] == txns) & (whole.lasts[at] >= seqs)
    before = whole.ids[at] - np.where(there, whole.lasts[at] - seqs + 1, 0)
    return np.where(behind, before, whole.starts[places]), there


def cut(
    whole: Pieces, lowest: NDArray[np.int64], hashes: NDArray[np.int64], stored: Columns
) -> list[NDArray[np.int64]]:
    """The numbers and ranges of each producer from its lowest kept id on, which `ids` counts from 0, and its hashes.

    The floor of a producer that lost ids is the highest of them. Epochs and names are left to the caller.
    """
    none = np.full(len(lowest) - len(stored), -1)
    floor_txns, floor_seqs = np.append(stored.floor_txns, none), np.append(stored.floor_seqs, none)
    low = np.repeat(lowest, np.diff(whole.bounds))
    begins = whole.ids - (whole.lasts - whole.firsts + 1)
    lost = np.flatnonzero(begins < low)
    # Of many pieces that lost ids, the last one's word stands.
    floor_txns[whole.places[lost]] = whole.txns[lost]
    ends = np.minimum(whole.ids[lost], low[lost])
    floor_seqs[whole.places[lost]] = whole.firsts[lost] + ends - 1 - begins[lost]
    kept = np.flatnonzero(whole.ids > low)
    heads = np.flatnonzero(np.append(1, np.diff(whole.ranges[kept])))
    at, until = kept[heads], kept[np.append(heads[1:], len(kept)) - 1]
    firsts = whole.firsts[at] + np.maximum(low[at] - begins[at], 0)
    ends_of_digests = whole.digest_bounds[1:]
    digests = np.repeat(ends_of_digests - hashes.cumsum(), hashes) + np.arange(hashes.sum())
    counts = np.bincount(whole.places[at], minlength=len(lowest))
    return [
        *(floor_txns, floor_seqs, counts, hashes),
        *(whole.txns[at], firsts, whole.lasts[until], whole.digests[digests]),
    ]


def _merged(
    counts: NDArray[np.int64], added: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the items of each producer come to stand, and where those that are added behind them, of these places."""
    old = np.arange(counts.sum()) + np.repeat(added.cumsum() - added, counts)
    return old, np.arange(len(places)) + counts.cumsum()[places]


def _placed(*items: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
    out = np.empty(sum(len(at) for at, _ in items), np.int64)
    for at, column in items:
        out[at] = column
    return out
