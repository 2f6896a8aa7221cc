"""Verdicts on many records at once: the same as the ledger's own, one by one, at a fraction of the cost.

Guarantee: exactly the verdicts, and exactly the ledger, that come of asking for each record in its order. Producers do
not meet in a ledger, unless it is full and forgets the oldest; so where that cannot happen, the records of each are
judged together, and ids that rise are taken as runs. Where it can, or where there are many producers with few records
each, all are judged in columns (`crowd.py`). Wherever neither goes, they are asked for one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.lanes import crowd
from pipeline.lanes.cost import HASH_COST, name_cost, range_costs
from pipeline.lanes.identity import MAX_LONG, Identity
from pipeline.lanes.recent import FRESH, OLD_EPOCH, PLACES, Run, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.recent import Recent
    from pipeline.lanes.stamps import Stamps

# In this order the array of verdicts holds their places; UNKNOWN is a record whose identity is not sound.
VERDICTS = tuple(Verdict)
UNKNOWN = -1
# Fewer records of a producer are cheaper to judge one by one, and so are many that do not rise.
FEW = 48
# More producers than these are judged together, if they have fewer records each.
MANY = 64
FEW_EACH = 16
# All ranges of a ledger are gone through for it, which takes longer than to ask for one record if they are more; a
# producer that is an object, and must be put back, takes as long as so many of them, and a range as so many hashes.
RANGES_EACH = 24
OBJECT = 40
HASHES = 8
# What tells ids apart within one number: a seq has 31 bits.
SEQ_BITS = 32
WIDEST = 1 << 31


def verdicts(ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64]) -> NDArray[np.int8]:
    """Judge records in their order; the ledger remembers the answers."""
    found = np.full(len(digests), UNKNOWN, np.int8)
    rows = np.flatnonzero(stamps.sound)
    if not len(rows):
        return found
    groups = _groups(stamps, rows)
    crowded = len(groups.starts) > MANY and len(rows) < FEW_EACH * len(groups.starts)
    fits = not crowded and _fits(ledger, stamps, groups)
    if not fits and _weight(ledger) <= RANGES_EACH * len(rows):
        rows = crowd.judge(ledger, stamps, digests, rows, found)
        if not len(rows):
            return found
        groups = _groups(stamps, rows)
        fits = _fits(ledger, stamps, groups)
    elif crowded:
        fits = _fits(ledger, stamps, groups)
    if not fits:
        _one_by_one(ledger, stamps, digests, rows, found)
        return found
    newest: dict[int, int] = {}
    plain = np.ones(len(found), bool)
    for place in np.flatnonzero(groups.counts > FEW).tolist():
        mine = groups.rows[groups.starts[place] : groups.starts[place] + groups.counts[place]]
        producer = int(stamps.producers[mine[0]])
        recent = ledger.recent(stamps.names[producer], int(stamps.epochs[mine[0]]))
        txns, seqs = stamps.txns[mine], stamps.seqs[mine]
        rising = _rising(recent, stamps.epochs[mine], txns, seqs)
        if rising is None:
            continue
        plain[mine] = False
        found[mine] = _in_runs(recent, rising, txns, seqs, digests[mine])
        fresh = mine[found[mine] == FRESH]
        if len(fresh):
            newest[producer] = int(fresh[-1])
    _in_order(ledger, stamps, digests, rows[plain[rows]], (found, newest))
    # Without a fresh id, a producer costs what it did.
    for producer in sorted(newest, key=newest.__getitem__):
        name = stamps.names[producer]
        recent = ledger.recent(name, 0)
        ledger.charge(recent)
        ledger.note_fresh(name, recent)
    return found


def _weight(ledger: Ledger) -> int:
    """What is gone through to judge in columns, in ranges."""
    return len(ledger.stored.txns) + len(ledger.stored.digests) // HASHES + OBJECT * ledger.held


class _Groups(NamedTuple):
    """The rows of each producer, in their order, one producer after the other."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]


def _groups(stamps: Stamps, rows: NDArray[np.int64]) -> _Groups:
    producers = stamps.producers[rows]
    order = np.argsort(producers, kind="stable")
    starts = np.append(0, np.flatnonzero(np.diff(producers[order])) + 1)
    return _Groups(rows[order], starts, np.diff(np.append(starts, len(rows))))


def _fits(ledger: Ledger, stamps: Stamps, groups: _Groups) -> bool:
    """Whether the ledger stays below its bound at every record, whatever the verdicts are."""
    limits = ledger.limits
    names = [stamps.names[producer] for producer in stamps.producers[groups.rows[groups.starts]].tolist()]
    known = [ledger.known(name) for name in names]
    before = np.array([_NEW if recent is None else _figures(recent) for recent in known], np.int64)
    charged, ranges, ids, hashes, lowest, top, peaks = before.T
    txns = stamps.txns[groups.rows]
    lowest = np.minimum(lowest, np.minimum.reduceat(txns, groups.starts))
    top = np.maximum(top, np.maximum.reduceat(txns, groups.starts))
    peaks = peaks + np.add.reduceat(stamps.seqs[groups.rows], groups.starts)
    # Each figure at its highest, as if all records were fresh, no two of them made one range, and none had gone yet;
    # there may be more ids than the limit, since it may have been higher.
    ranges, ids = (np.maximum(held, np.minimum(held + groups.counts, limits.recent_ids)) for held in (ranges, ids))
    hashes = np.minimum(hashes + groups.counts, limits.hashes)
    costs = range_costs(ranges, top - lowest, peaks, ids) + HASH_COST * hashes
    new = name_cost([name for name, recent in zip(names, known, strict=True) if recent is None])
    most = ledger.size_bytes + new + int((costs - charged).sum())
    return most <= limits.ledger_bytes


# The figures of a producer that is new: anything is lower than its lowest transaction.
_NEW = (0, 0, 0, 0, MAX_LONG, 0, 0)


def _figures(recent: Recent) -> tuple[int, ...]:
    """Its cost, and what that follows from: counts of ranges, ids and hashes, both ends of its transactions, peaks."""
    ranges, hashes = len(recent.lasts) - recent.head, min(len(recent.digests), recent.hashes)
    return (recent.charged, ranges, recent.count, hashes, recent.txns[recent.head], recent.top_txn, recent.peaks)


def _one_by_one(
    ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64], rows: NDArray[np.int64], found: NDArray[np.int8]
) -> None:
    columns = (stamps.producers, stamps.epochs, stamps.txns, stamps.seqs, digests)
    for row, producer, epoch, txn, seq, digest in zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    ):
        found[row] = PLACES[ledger.judge(Identity(stamps.names[producer], epoch, txn, seq), digest)]


def _in_order(
    ledger: Ledger,
    stamps: Stamps,
    digests: NDArray[np.int64],
    rows: NDArray[np.int64],
    answers: tuple[NDArray[np.int8], dict[int, int]],
) -> None:
    """Judge the records of any producers one after the other: the verdicts, and the last fresh row of each producer."""
    found, newest = answers
    held: dict[int, Recent] = {}
    places: list[int] = []
    columns = (stamps.producers, stamps.epochs, stamps.txns, stamps.seqs, digests)
    for row, producer, epoch, txn, seq, digest in zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    ):
        recent = held.get(producer)
        if recent is None:
            recent = held[producer] = ledger.recent(stamps.names[producer], epoch)
        if epoch != recent.epoch:
            if epoch < recent.epoch:
                places.append(OLD_EPOCH)
                continue
            recent.epoch = epoch
        verdict = recent.judge(txn, seq, digest)
        if verdict is Verdict.FRESH:
            newest[producer] = row
            places.append(FRESH)
        else:
            places.append(PLACES[verdict])
    found[rows] = places


def _rising(
    recent: Recent, epochs: NDArray[np.int64], txns: NDArray[np.int64], seqs: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Which ids of one producer are higher than all before; nothing where runs do not pay."""
    if (epochs != recent.epoch).any():
        return None
    lowest = min(int(txns.min()), recent.top_txn) if recent.top_txn >= 0 else int(txns.min())
    if int(txns.max()) - lowest >= WIDEST:
        return None
    ids = ((txns - lowest) << SEQ_BITS) | seqs
    top = -1 if recent.top_txn < 0 else ((recent.top_txn - lowest) << SEQ_BITS) | recent.top_seq
    rising: NDArray[np.bool_] = ids > np.maximum.accumulate(np.append(top, ids[:-1]))
    return rising if rising.sum() * 4 >= len(ids) * 3 else None


def _in_runs(
    recent: Recent,
    rising: NDArray[np.bool_],
    txns: NDArray[np.int64],
    seqs: NDArray[np.int64],
    digests: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Take ids that rise as they are, run by run; ask for each of the others in between."""
    found = np.full(len(txns), FRESH, np.int8)
    falls = np.flatnonzero(~rising)
    high_txns, high_seqs, high_digests = txns[rising], seqs[rising], digests[rising]
    # An id goes on from the one before it among those that rise; of the first, that is the highest known.
    same_txn = high_txns == np.append(recent.top_txn, high_txns[:-1])
    before = np.append(recent.top_seq, high_seqs[:-1])
    follows = same_txn & (high_seqs == before + 1)
    peaks = np.append(0, (high_seqs - np.where(same_txn, before, 0)).cumsum())
    # So many that rise stand before each fall: there a run ends, and a piece of a range with it.
    cuts = falls - np.arange(len(falls))
    ends_of_runs = np.append(cuts, len(high_txns))
    begins = ~follows
    begins[cuts[cuts < len(begins)]] = True
    if len(begins):
        begins[0] = True
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(high_txns)) - 1
    piece_txns, piece_firsts, piece_lasts = high_txns[firsts], high_seqs[firsts], high_seqs[lasts]
    joined = follows[firsts]
    bounds = np.searchsorted(firsts, ends_of_runs).tolist()
    start = piece = 0
    for number, (end, until) in enumerate(zip(ends_of_runs.tolist(), bounds, strict=True)):
        if end > start:
            run = Run(
                piece_txns[piece:until],
                piece_firsts[piece:until],
                piece_lasts[piece:until],
                high_digests[start:end],
                bool(joined[piece]),
                int(peaks[end] - peaks[start]),
            )
            recent.extend(run, (int(high_txns[end - 1]), int(high_seqs[end - 1])))
        start, piece = end, until
        if number < len(falls):
            row = int(falls[number])
            found[row] = PLACES[recent.judge(int(txns[row]), int(seqs[row]), int(digests[row]))]
    return found
