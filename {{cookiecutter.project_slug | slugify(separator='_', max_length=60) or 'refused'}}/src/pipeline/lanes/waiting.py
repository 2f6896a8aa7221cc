"""Producers that wait to be forgotten by a full ledger, oldest fresh id first, and what each costs as ids rise.

Guarantee: whatever is asked follows from which of them lost all but their highest id before an id came, and from that
alone. Who does is found in `forgetting.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.cost import HASH_COST, range_cost, range_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.pieces import Pieces
    from pipeline.sections import Dedup


class Waiting:
    """An entry for the newest stored piece of each producer with more than one id, then one for each risen id.

    Behind the last stands nobody, who comes before the first id of a producer, and is never forgotten.
    """

    def __init__(self, whole: Pieces, wide: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Ids rise in the order of `times`."""
        self._times = times
        self.pieces = np.concatenate((wide, self.in_order(whole.risen), np.zeros(1, np.int64)))
        nobody = len(self.pieces) - 1
        entries = np.full(len(whole.txns), nobody)
        entries[self.pieces[:-1]] = np.arange(nobody)
        self.first = whole.first
        # The entry of the producer of each id before that id.
        self.before = np.where(self.first, nobody, entries[whole.risen - 1])
        # With which id the next entry of the same producer comes, so that this one means nothing any more.
        self.ends = np.full(len(self.pieces), len(times))
        self.ends[self.before] = times
        self.ends[-1] = -1

    def in_order(self, column: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort what is told of risen ids, by producer, in the order in which they come."""
        found = np.empty(len(column), np.int64)
        found[self._times] = column
        return found


class Costs:
    """What producers cost by their newest pieces: if they lost all but the highest id (`alone`), and otherwise."""

    def __init__(self, whole: Pieces, stored: NDArray[np.int64], limits: Dedup) -> None:
        """Stored producers cost so much."""
        self._whole, self._most = whole, limits.recent_ids
        risen, tops = whole.risen, whole.tops[: len(stored)]
        some = np.concatenate((tops, risen))
        self.alone, self._kept, self._hashed = np.zeros((3, len(whole.txns)), np.int64)
        self._hashed[some] = np.minimum(whole.hashed(some), limits.hashes)
        self._highest = [column[risen] for column in (whole.ids, whole.ranges, whole.txns, whole.peaks, self._hashed)]
        # The lowest id and its piece, if the producer is never forgotten.
        start, self._begins = whole.starts[whole.places[risen]], whole.bounds[whole.places[risen]]
        self._lowest = np.maximum(start, whole.ids[risen] - limits.recent_ids)
        self._piece = self._begins.copy()
        trimmed = self._lowest > start
        self._piece[trimmed] = np.searchsorted(whole.ids, self._lowest[trimmed], "right")
        self.lowest = self._lowest
        self._kept[tops] = stored
        hashes = np.minimum(self._hashed[some], 1)
        self.alone[some] = range_costs(np.ones(len(some), np.int64), whole.lasts[some]) + HASH_COST * hashes

    def lose(self, lost: NDArray[np.bool_]) -> None:
        """Find what each producer keeps and costs, if those of some risen ids had lost all they could before."""
        whole, risen = self._whole, self._whole.risen
        highest = np.maximum.accumulate(np.where(lost, risen - 1, -1))
        lowest = whole.ids[highest] - 1
        forgotten = (highest >= self._begins) & (lowest >= self._lowest)
        self.lowest = np.where(forgotten, lowest, self._lowest)
        piece = np.where(forgotten, highest, self._piece)
        all_ids, all_ranges, txns, all_peaks, hashed = self._highest
        ids, ranges = all_ids - self.lowest, all_ranges - whole.ranges[piece] + 1
        peaks = all_peaks - whole.peaks[piece] + whole.lasts[piece]
        inner = ids - ranges
        costs = range_costs(ranges, txns - whole.txns[piece], peaks - inner, inner)
        self._kept[risen] = costs + HASH_COST * np.minimum(hashed, ids)

    def rises(
        self, waiting: Waiting, names: NDArray[np.int64], *, lost: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By how much each id raises the cost, in their order, and what is gained by forgetting each entry.

        All producers `lost` all they could before each of their ids, or none did.
        """
        risen = self._whole.risen
        self.lose(np.full(len(risen), lost) & ~waiting.first)
        before = np.where(waiting.first, 0, (self.alone if lost else self._kept)[risen - 1])
        gains = self._kept[waiting.pieces] - self.alone[waiting.pieces]
        return waiting.in_order(self._kept[risen] - before + names), gains

    def between(self, low: int, high: int) -> int:
        """What a producer costs with a risen id as its newest, if all is lost before the last id of another piece.

        If its limit of ids leaves it even less, it costs what `lose` found last.
        """
        whole = self._whole
        ids = whole.ids.item(high) - whole.ids.item(low) + 1
        if ids > self._most:
            return int(self._kept.item(high))
        ranges = whole.ranges.item(high) - whole.ranges.item(low) + 1
        peaks = whole.peaks.item(high) - whole.peaks.item(low) + whole.lasts.item(low)
        hashes = min(int(self._hashed.item(high)), ids)
        return range_cost(ranges, ids, whole.txns.item(high) - whole.txns.item(low), peaks) + HASH_COST * hashes
