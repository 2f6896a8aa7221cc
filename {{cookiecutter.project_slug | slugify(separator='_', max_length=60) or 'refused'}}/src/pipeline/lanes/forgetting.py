"""Whom a full ledger forgets while many ids come that all rise.

Guarantee: exactly what comes of asking after each id, while the ledger costs more than its bound, for the producer
whose last fresh id is oldest, and of leaving it only its highest id. Each id takes a step of its own, since what is
forgotten decides what the next one costs; but a step is a few numbers, and most costs are found for all ids at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.lanes.waiting import Costs, Waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.pieces import Pieces
    from pipeline.sections import Dedup

NEVER = 1 << 62
# Instead of the entry from whose last id on a producer is kept: it lost nothing; or just now, all but that id.
WHOLE, LOST = -1, -2


class Bill(NamedTuple):
    """What a ledger costs before the ids come."""

    total: int
    stored: NDArray[np.int64]  # the ranges and hashes of each producer, by place
    order: NDArray[np.int64]  # places by the last fresh id
    names: NDArray[np.int64]  # what each risen id costs besides, if it is the first of its producer


class Forgotten(NamedTuple):
    """For each piece, as long as it is the newest one of its producer; only for risen ids, and the newest stored."""

    lowest: NDArray[np.int64]  # the lowest id that is kept, counted from 0 as `Pieces.ids` does
    when: NDArray[np.int64]  # so many ids had risen when the producer lost all but its highest id, or NEVER


def forgotten(whole: Pieces, times: NDArray[np.int64], bill: Bill, limits: Dedup) -> Forgotten:
    """What is forgotten as ids rise in the order of `times`."""
    tops, starts = whole.tops[bill.order], whole.starts[bill.order]
    waiting = Waiting(whole, tops[whole.ids[tops] - starts > 1], times)
    costs = Costs(whole, bill.stored, limits)
    gone = _gone(waiting, costs, bill.names, limits.ledger_bytes - bill.total)
    lost = gone < len(times)
    costs.lose(lost[waiting.before])
    lowest, when = np.full((2, len(whole.ids)), NEVER)
    lowest[tops] = starts
    lowest[whole.risen] = costs.lowest
    when[waiting.pieces[lost]] = gone[lost] + 1
    return Forgotten(lowest, when)


def _gone(waiting: Waiting, costs: Costs, names: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """With which id each entry is forgotten, counted from 0; behind the last id, if it is not."""
    count = len(names)
    gone = np.full(len(waiting.pieces), count)
    anew, gained_anew = costs.rises(waiting, names, lost=True)
    rises, gained = costs.rises(waiting, names, lost=False)
    if (rises.cumsum() <= room).all():
        return gone
    pieces, before = waiting.pieces, waiting.in_order(waiting.before)
    ends, gains = waiting.ends.tolist(), gained.tolist()
    since, risen, entry, total = [WHOLE] * (count + 1), len(ends) - 1 - count, 0, 0
    steps = zip(since, rises.tolist(), anew.tolist(), gained_anew[risen:].tolist(), strict=False)
    for time, (low, rise, rise_anew, gain_anew) in enumerate(steps):
        at = risen + time
        if low == WHOLE:
            total += rise
        elif low == LOST:
            total += rise_anew
            gains[at] = gain_anew
            since[ends[at]] = before.item(time)
        else:
            kept = costs.between(pieces.item(low), pieces.item(at))
            total += kept - costs.between(pieces.item(low), pieces.item(before.item(time)))
            gains[at] = kept - costs.alone.item(pieces.item(at))
            since[ends[at]] = low
        while total > room and entry <= at:
            after = ends[entry]
            if after > time:  # its producer has had no fresh id since
                gone[entry] = time
                total -= gains[entry]
                since[after] = LOST
            entry += 1
    return gone
