"""The records of many producers beside what the ledger knows of each: which are of an old epoch, and which ids rise.

Guarantee: an id that rises is higher than all that were known of its producer, and so is fresh whatever was forgotten;
what is told of the others is only that they do not rise. Nothing here depends on what a full ledger forgets.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.columns import Columns
    from pipeline.lanes.stamps import Stamps

# Sorting by numbers of 16 bits takes a tenth of the time.
SHORT = 1 << 16


class Arrivals(NamedTuple):
    """Records, by producer and then in their order; a new producer's place lies behind all that are stored."""

    new: list[str]
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    txns: NDArray[np.int64]
    seqs: NDArray[np.int64]
    rising: NDArray[np.bool_]
    old: NDArray[np.int64]  # rows of an old epoch, which are not among the others
    epochs: NDArray[np.int64]  # of all producers, after these records


def arrivals(stored: Columns, known: dict[str, int], stamps: Stamps, rows: NDArray[np.int64]) -> Arrivals:
    """Sort records, which stand in these rows, by producer."""
    places, new = _places(known, stamps, rows)
    many = len(stored) + len(new) > SHORT
    order = np.argsort(places if many else places.astype(np.uint16), kind="stable")
    places, rows = places[order], rows[order]
    heads = _heads(places)
    epochs = np.append(stored.epochs, np.zeros(len(new), np.int64))
    first_of_new = heads & (places >= len(stored))
    epochs[places[first_of_new]] = stamps.epochs[rows[first_of_new]]
    kept = _current(places, stamps.epochs[rows], epochs)
    old = rows[~kept]
    places, rows = places[kept], rows[kept]
    txns, seqs = stamps.txns[rows], stamps.seqs[rows]
    return Arrivals(new, rows, places, txns, seqs, _rising(stored, places, txns, seqs), old, epochs)


def _places(known: dict[str, int], stamps: Stamps, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """The place of each record's producer, and the names of those that are new."""
    by_name = np.fromiter(map(known.get, stamps.names, repeat(-1)), np.int64, len(stamps.names))
    producers = stamps.producers[rows]
    places = by_name[producers]
    if places.min() >= 0:
        return places, []
    new = np.unique(producers[places < 0])
    by_name[new] = len(known) + np.arange(len(new))
    return by_name[producers], [stamps.names[name] for name in new.tolist()]


def _heads(places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which records are the first of their producer."""
    heads = np.ones(len(places), bool)
    heads[1:] = places[1:] != places[:-1]
    return heads


def _current(places: NDArray[np.int64], sent: NDArray[np.int64], epochs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which records are of no older epoch than one before them; `epochs` of their producers are raised."""
    if (sent == epochs[places]).all():
        return np.ones(len(places), bool)
    # Ranks of the epochs that occur stand for them, so that producer and epoch are one number.
    ranks = np.unique(np.append(sent, epochs), return_inverse=True)[1]
    mine, stored, base = ranks[: len(sent)], ranks[len(sent) :], places * len(ranks)
    current: NDArray[np.bool_] = base + mine == np.maximum.accumulate(base + np.maximum(mine, stored[places]))
    np.maximum.at(epochs, places, sent)
    return current


def _rising(
    stored: Columns, places: NDArray[np.int64], txns: NDArray[np.int64], seqs: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which ids are higher than all before of their producer."""
    heads = _heads(places)
    tops = np.append(stored.range_counts.cumsum() - 1, np.full(1, -1))
    before_txns, before_seqs = np.roll(txns, 1), np.roll(seqs, 1)
    old = heads & (places < len(stored))
    before_txns[heads] = before_seqs[heads] = -1
    before_txns[old] = stored.txns[tops[places[old]]]
    before_seqs[old] = stored.lasts[tops[places[old]]]
    rising: NDArray[np.bool_] = (txns > before_txns) | ((txns == before_txns) & (seqs > before_seqs))
    if rising.all():
        return rising
    # Only where one does not rise above the one before it, more than that is to be compared.
    mixed = np.zeros(int(places[-1]) + 1, bool)
    mixed[places[~rising]] = True
    some = np.flatnonzero(mixed[places])
    at_heads = np.flatnonzero(heads[some])
    keys = [
        np.insert(column[some], at_heads, before[some][at_heads])
        for column, before in ((seqs, before_seqs), (txns, before_txns), (places, places))
    ]
    order = np.lexsort(keys)
    steps = np.zeros(len(order), bool)
    for key in keys:
        steps[1:] |= np.diff(key[order]) != 0
    ranks = np.empty(len(order), np.int64)
    ranks[order] = steps.cumsum()
    higher = ranks > np.append(-1, np.maximum.accumulate(ranks)[:-1])
    rising[some] = np.delete(higher, at_heads + np.arange(len(at_heads)))
    return rising
