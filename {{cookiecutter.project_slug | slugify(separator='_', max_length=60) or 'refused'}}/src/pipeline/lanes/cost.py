"""What a ledger takes in a lane record, at most: the cost that `dedup.ledger_bytes` bounds.

Guarantee: no less than the bytes that `Columns.written` makes of it, beyond those of an empty ledger, and it follows
from what is remembered alone. Of numbers that sum to S, at most S / 128 take a second byte, at most S / 128**2 a third,
and so on (`packed.py`). So a few counts and sums of a producer are enough; they are kept up at each id, and nothing is
written to know its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.lanes.packed import BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.columns import Columns

# Beside its name: 31 for epoch, floor and counts, 2 for the length of the name, 8 for a first transaction that is no
# difference, and 7 towards the lengths of the columns, which grow with it.
PRODUCER_COST = 48
HASH_COST = 8
# A range is three numbers: transaction, first and last; each takes a byte, and more as the sums say.
RANGE_COST = 3


class Figures(NamedTuple):
    """What the cost of each producer follows from."""

    ids: NDArray[np.int64]
    spans: NDArray[np.int64]  # from the lowest transaction to the highest
    peaks: NDArray[np.int64]  # the highest places in each transaction, summed


def range_cost(ranges: int, ids: int, span: int, peaks: int) -> int:
    """What the ranges of one producer take."""
    total, inner = RANGE_COST * ranges, ids - ranges
    # The sums of the three columns: a range's transaction, its first and its last are written as differences.
    for size in (span, peaks - inner, inner):
        more = size >> BITS
        while more > 0:
            total += min(more, ranges)
            more >>= BITS
    return total


def range_costs(ranges: NDArray[np.int64], *sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the ranges of many producers take, by the sums of their columns."""
    total = RANGE_COST * ranges
    for size in sums:
        more = size >> BITS
        while (more > 0).any():
            total += np.minimum(more, ranges)
            more >>= BITS
    return total


def figures(columns: Columns) -> Figures:
    """Of each producer."""
    ends = columns.range_counts.cumsum()
    starts = ends - columns.range_counts
    if not len(starts):
        return Figures(starts, starts, starts)
    txns, last_of_txn = columns.txns, np.ones(len(columns.txns), bool)
    last_of_txn[:-1] = txns[1:] != txns[:-1]
    last_of_txn[ends - 1] = True
    return Figures(
        np.add.reduceat(columns.lasts - columns.firsts + 1, starts),
        txns[ends - 1] - txns[starts],
        np.add.reduceat(np.where(last_of_txn, columns.lasts, 0), starts),
    )


def kept_costs(columns: Columns, found: Figures) -> NDArray[np.int64]:
    """What the ranges and hashes of each producer take."""
    ids, spans, peaks = found
    ranges = columns.range_counts
    inner = ids - ranges
    return range_costs(ranges, spans, peaks - inner, inner) + HASH_COST * columns.digest_counts


def costs(columns: Columns) -> NDArray[np.int64]:
    """What each producer takes in a lane record, at most."""
    names = np.fromiter((len(name.encode()) for name in columns.producer_ids), np.int64, len(columns))
    return PRODUCER_COST + names + kept_costs(columns, figures(columns))


def name_cost(producer_ids: list[str]) -> int:
    """What these producers take, before anything is kept of them."""
    return PRODUCER_COST * len(producer_ids) + len("".join(producer_ids).encode())


def cost(columns: Columns) -> int:
    """What all of them take in a lane record, at most."""
    return int(kept_costs(columns, figures(columns)).sum()) + name_cost(columns.producer_ids)
