"""What a ledger remembered when it was last in columns: where each producer stands in them, and what it costs.

Guarantee: what is restored of a producer is what the columns hold of it; nothing here changes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.cost import figures, kept_costs, name_cost
from pipeline.lanes.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pipeline.lanes.columns import Columns
    from pipeline.sections import Dedup

ITEM = 8  # bytes of a number in a column


class Standing:
    """Columns, and what follows from them."""

    def __init__(
        self, columns: Columns, order: NDArray[np.int64] | None = None, places: dict[str, int] | None = None
    ) -> None:
        """Take columns of producers that stand in any `order` of their last fresh id, or in this one.

        The cost of it, which is always asked for, is found; and so are the places, if they are not given.
        """
        self.columns = columns
        self._order = order
        self.places = places or dict(zip(columns.producer_ids, range(len(columns)), strict=True))
        self._figures = figures(columns)
        self.costs = kept_costs(columns, self._figures)  # of the ranges and hashes of each producer
        self.cost = int(self.costs.sum()) + name_cost(columns.producer_ids)

    @property
    def order(self) -> NDArray[np.int64]:
        """The places of all producers, by their last fresh id, oldest first."""
        return np.arange(len(self.columns)) if self._order is None else self._order

    def in_order(self) -> Columns:
        """The columns, with each producer at the place that it has in the order."""
        return self.columns if self._order is None else self.columns.taken(self._order)

    def wide(self) -> Iterator[str]:
        """Producers with more than their highest id, in their order."""
        for place in np.flatnonzero(self._figures.ids > 1).tolist():
            yield self.columns.producer_ids[place]

    def restored(self, place: int, limits: Dedup) -> Recent:
        """What is known of one producer."""
        numbers, (txns, firsts, lasts, digests) = self._by_place
        epoch, floor_txn, floor_seq, ranges, range_count, hashes, hash_count, ids, peaks = numbers[place]
        rows = slice(ITEM * ranges, ITEM * (ranges + range_count))
        hashed = slice(ITEM * hashes, ITEM * (hashes + hash_count))
        return Recent(limits, epoch).restore(
            (floor_txn, floor_seq), (txns[rows], firsts[rows], lasts[rows], digests[hashed]), (ids, peaks)
        )

    @cached_property
    def _by_place(self) -> tuple[list[list[int]], list[bytes]]:
        """The numbers of each producer, with the places of its ranges and hashes in the bytes of the columns."""
        columns = self.columns
        ranges, hashes = columns.range_counts, columns.digest_counts
        numbers = (columns.epochs, columns.floor_txns, columns.floor_seqs, ranges.cumsum() - ranges, ranges)
        rest = (hashes.cumsum() - hashes, hashes, self._figures.ids, self._figures.peaks)
        octets = [column.tobytes() for column in (columns.txns, columns.firsts, columns.lasts, columns.digests)]
        return np.stack((*numbers, *rest), axis=1).tolist(), octets
