"""What a ledger remembers of all its producers, in columns: as it is stored, and without an object for each.

Guarantee: producers come in the order of their last fresh id, oldest first, and `read(columns.written())` gives the
same columns; what contradicts itself is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.lanes.packed import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

NUMBERS = ("epochs", "floor_txns", "floor_seqs", "range_counts", "digest_counts")
RANGES = ("txns", "firsts", "lasts")
DIGEST = np.dtype(">i8")
# Columns that hold -1 for "none yet" are stored one higher.
RAISED = ("floor_txns", "floor_seqs")


class BadColumns(ValueError):
    """Columns that no ledger writes."""


class ProducerState(NamedTuple):
    """One producer; `txns`, `firsts`, `lasts` are the columns of its ranges."""

    producer_id: str
    epoch: int
    floor: tuple[int, int] | None
    txns: list[int]
    firsts: list[int]
    lasts: list[int]
    digests: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All producers; the ranges and hashes of each follow those of the one before."""

    producer_ids: list[str]
    epochs: NDArray[np.int64]
    floor_txns: NDArray[np.int64]
    floor_seqs: NDArray[np.int64]
    range_counts: NDArray[np.int64]
    digest_counts: NDArray[np.int64]
    txns: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    digests: NDArray[np.int64]

    @classmethod
    def of(cls, states: Iterable[ProducerState]) -> Columns:
        """The columns of these producers."""
        held = list(states)
        floors = [state.floor or (-1, -1) for state in held]
        return cls(
            [state.producer_id for state in held],
            *(
                np.array(column, np.int64)
                for column in (
                    [state.epoch for state in held],
                    [floor[0] for floor in floors],
                    [floor[1] for floor in floors],
                    [len(state.txns) for state in held],
                    [len(state.digests) for state in held],
                    [txn for state in held for txn in state.txns],
                    [first for state in held for first in state.firsts],
                    [last for state in held for last in state.lasts],
                    [digest for state in held for digest in state.digests],
                )
            ),
        )

    def __len__(self) -> int:
        """How many producers."""
        return len(self.producer_ids)

    def __iter__(self) -> Iterator[ProducerState]:
        """Each producer by itself."""
        ranges, digests = bounds(self.range_counts), bounds(self.digest_counts)
        for place, producer_id in enumerate(self.producer_ids):
            txn, seq = int(self.floor_txns[place]), int(self.floor_seqs[place])
            rows = slice(ranges[place], ranges[place + 1])
            yield ProducerState(
                producer_id,
                int(self.epochs[place]),
                None if txn < 0 else (txn, seq),
                self.txns[rows].tolist(),
                self.firsts[rows].tolist(),
                self.lasts[rows].tolist(),
                self.digests[digests[place] : digests[place + 1]].tolist(),
            )

    def __eq__(self, other: object) -> bool:
        """Alike in every column; a list of producers is compared as its columns."""
        if not isinstance(other, (Columns, list)):
            return NotImplemented
        theirs = other if isinstance(other, Columns) else Columns.of(other)
        return all(np.array_equal(getattr(self, item.name), getattr(theirs, item.name)) for item in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def taken(self, places: NDArray[np.int64]) -> Columns:
        """These producers, in this order."""
        ranges, digests = _items(self.range_counts, places), _items(self.digest_counts, places)
        columns = [getattr(self, name)[places] for name in NUMBERS]
        columns += [getattr(self, name)[ranges] for name in RANGES]
        columns.append(self.digests[digests])
        return Columns([self.producer_ids[place] for place in places.tolist()], *columns)

    def followed_by(self, others: Columns) -> Columns:
        """These producers and others behind them."""
        return Columns(
            self.producer_ids + others.producer_ids,
            *(
                np.concatenate((getattr(self, item.name), getattr(others, item.name)))
                for item in fields(self)
                if item.name != "producer_ids"
            ),
        )

    def written(self) -> dict[str, Any]:
        """As they are stored: differences from range to range, which are small, as packed numbers."""
        starts = _firsts_of(self.range_counts)
        rises = np.diff(self.txns, prepend=0)
        rises[starts] = self.txns[starts]
        firsts = lasts = bytes(len(rises))  # each range is the first record of its transaction alone, as most are
        if self.lasts.any():
            new = rises != 0
            new[starts] = True
            before = np.concatenate(([0], self.lasts))[: len(self.lasts)]
            firsts = _packed(np.where(new, self.firsts, self.firsts - before))
            lasts = _packed(self.lasts - self.firsts)
        numbers = {name: _packed(getattr(self, name) + (name in RAISED)) for name in NUMBERS}
        digests = self.digests.astype(DIGEST).tobytes()
        ranges = {"txns": _packed(rises), "firsts": firsts, "lasts": lasts}
        return {"producer_ids": self.producer_ids, **numbers, **ranges, "digests": digests}


def _packed(column: NDArray[np.int64]) -> bytes:
    return packed(column.astype(np.uint64))


def _firsts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the first range of each producer stands."""
    return bounds(counts)[:-1][counts > 0]


def read(stored: dict[str, Any]) -> Columns:
    """Read what was written."""
    ids = stored["producer_ids"]
    numbers = {name: unpacked(stored[name], len(ids)).astype(np.int64) - (name in RAISED) for name in NUMBERS}
    counts = numbers["range_counts"]
    if any((numbers[name] < 0).any() for name in NUMBERS if name not in RAISED):
        msg = "a number beyond 63 bits"
        raise BadColumns(msg)
    total = int(counts.sum())
    digests = np.frombuffer(stored["digests"], DIGEST).astype(np.int64)
    if len(digests) != int(numbers["digest_counts"].sum()) or (counts < 1).any():
        msg = "columns of unlike length"
        raise BadColumns(msg)
    starts = _firsts_of(counts)
    steps = unpacked(stored["txns"], total).view(np.int64)
    new = steps != 0
    new[starts] = True
    if stored["firsts"] == stored["lasts"] == bytes(total):  # each is the first record of its transaction alone
        firsts = lasts = np.zeros(total, np.int64)
        rising = new
    else:
        leaps, widths = (unpacked(stored[name], total).view(np.int64) for name in ("firsts", "lasts"))
        rising = new | (leaps > 0)
        lasts = _summed(leaps + widths, np.flatnonzero(new))
        firsts = lasts - widths
    columns = [*numbers.values(), _summed(steps, starts), firsts, lasts, digests]
    found = Columns(ids, *columns)
    _check(found, starts, rising & (steps >= 0))
    return found


def _check(found: Columns, starts: NDArray[np.int64], rising: NDArray[np.bool_]) -> None:
    """What no ledger writes is damage, whether by a flipped bit or by another hand."""
    if len(set(found.producer_ids)) != len(found):
        msg = "a producer stands in it twice"
        raise BadColumns(msg)
    txns, firsts, lasts = found.txns, found.firsts, found.lasts
    ids = np.add.reduceat(lasts - firsts + 1, starts) if len(starts) else starts
    floors = (found.floor_txns < txns[starts]) | (
        (found.floor_txns == txns[starts]) & (found.floor_seqs < firsts[starts])
    )
    sound = (
        (txns >= 0).all()
        and (firsts >= 0).all()
        and (lasts >= firsts).all()
        and rising.all()
        and floors.all()
        and ((found.floor_txns < 0) == (found.floor_seqs < 0)).all()
        and (found.digest_counts <= ids).all()
    )
    if not sound:
        msg = "ranges are not rising"
        raise BadColumns(msg)


def bounds(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the items of each begin, and where the last end."""
    return np.concatenate((np.zeros(1, np.int64), counts.cumsum()))


def _items(counts: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where all the items of these stand."""
    starts, chosen = bounds(counts)[:-1][places], counts[places]
    return np.repeat(starts - bounds(chosen)[:-1], chosen) + np.arange(chosen.sum())


def _summed(steps: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Running sums that begin anew at each start, of which the first is the first place."""
    sums: NDArray[np.int64] = steps.cumsum()
    before = sums[starts] - steps[starts]
    sums -= np.repeat(before, np.diff(np.append(starts, len(steps))))
    return sums
