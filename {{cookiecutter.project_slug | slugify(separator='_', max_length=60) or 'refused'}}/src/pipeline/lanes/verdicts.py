"""Verdicts on many records at once: the same as the ledger's own, one by one, at a fraction of the cost.

Guarantee: exactly the verdicts, and exactly the ledger, that come of asking for each record in its order. Producers do
not meet in a ledger, unless it is full and forgets the oldest; so where that cannot happen, the records of each are
judged together, and ids that rise are taken as runs. Wherever that does not hold, they are asked for one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import PRODUCER_COST
from pipeline.lanes.recent import HASH_COST, RANGE_COST, Run, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.recent import Recent
    from pipeline.lanes.stamps import Stamps

# In this order the array of verdicts holds their places; UNKNOWN is a record whose identity is not sound.
VERDICTS = tuple(Verdict)
UNKNOWN = -1
_PLACES = {verdict: place for place, verdict in enumerate(VERDICTS)}
_FRESH = _PLACES[Verdict.FRESH]
# Fewer records of a producer are cheaper to judge one by one, and so are many that do not rise.
FEW = 12
# What tells ids apart within one number: a seq has 31 bits.
SEQ_BITS = 32
WIDEST = 1 << 31


def verdicts(ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64]) -> NDArray[np.int8]:
    """Judge records in their order; the ledger remembers the answers."""
    found = np.full(len(digests), UNKNOWN, np.int8)
    rows = np.flatnonzero(stamps.sound)
    groups = _groups(stamps.producers[rows])
    if not _fits(ledger, stamps, [(int(stamps.producers[rows[group[0]]]), len(group)) for group in groups]):
        _one_by_one(ledger, stamps, digests, rows, found)
        return found
    newest: list[tuple[int, str, Recent]] = []
    for group in groups:
        mine = rows[group]
        name = stamps.names[int(stamps.producers[mine[0]])]
        recent = ledger.recent(name, int(stamps.epochs[mine[0]]))
        before = recent.cost
        found[mine] = _of_producer(recent, stamps.epochs[mine], stamps.txns[mine], stamps.seqs[mine], digests[mine])
        ledger.note_cost(recent.cost - before)
        fresh = mine[found[mine] == _FRESH]
        if len(fresh):
            newest.append((int(fresh[-1]), name, recent))
    for _, name, recent in sorted(newest, key=lambda last: last[0]):
        ledger.note_fresh(name, recent)
    return found


def _groups(producers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places of each producer's records, in their order."""
    if not len(producers):
        return []
    order = np.argsort(producers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(producers[order])) + 1)


def _fits(ledger: Ledger, stamps: Stamps, counts: list[tuple[int, int]]) -> bool:
    """Whether the ledger stays below its bound at every record, whatever the verdicts are."""
    limits, most = ledger.limits, ledger.size_bytes
    if most + sum(count for _, count in counts) * (RANGE_COST + HASH_COST) + _names(stamps) <= limits.ledger_bytes:
        return True
    for producer, count in counts:
        known = ledger.known(stamps.names[producer])
        ranges, hashes = known or (0, 0)
        if known is None:
            most += PRODUCER_COST + len(stamps.names[producer].encode())
        most += RANGE_COST * min(count, limits.recent_ids - ranges)
        most += HASH_COST * min(count, limits.hashes - hashes)
    return most <= limits.ledger_bytes


def _names(stamps: Stamps) -> int:
    return sum(PRODUCER_COST + len(name.encode()) for name in stamps.names)


def _one_by_one(
    ledger: Ledger, stamps: Stamps, digests: NDArray[np.int64], rows: NDArray[np.int64], found: NDArray[np.int8]
) -> None:
    columns = (stamps.producers, stamps.epochs, stamps.txns, stamps.seqs, digests)
    for row, producer, epoch, txn, seq, digest in zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    ):
        found[row] = _PLACES[ledger.judge(Identity(stamps.names[producer], epoch, txn, seq), digest)]


def _of_producer(
    recent: Recent,
    epochs: NDArray[np.int64],
    txns: NDArray[np.int64],
    seqs: NDArray[np.int64],
    digests: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Judge the records of one producer."""
    if len(txns) > FEW and (epochs == recent.epoch).all():
        lowest = min(int(txns.min()), recent.top_txn) if recent.top_txn >= 0 else int(txns.min())
        if int(txns.max()) - lowest < WIDEST:
            ids = ((txns - lowest) << SEQ_BITS) | seqs
            top = -1 if recent.top_txn < 0 else ((recent.top_txn - lowest) << SEQ_BITS) | recent.top_seq
            rising = ids > np.maximum.accumulate(np.append(top, ids[:-1]))
            if rising.sum() * 4 >= len(ids) * 3:
                return _in_runs(recent, rising, txns, seqs, digests)
    found = np.empty(len(txns), np.int8)
    for row, (epoch, txn, seq, digest) in enumerate(
        zip(epochs.tolist(), txns.tolist(), seqs.tolist(), digests.tolist(), strict=True)
    ):
        if epoch < recent.epoch:
            found[row] = _PLACES[Verdict.OLD_EPOCH]
            continue
        recent.epoch = epoch
        found[row] = _PLACES[recent.judge(txn, seq, digest)]
    return found


def _in_runs(
    recent: Recent,
    rising: NDArray[np.bool_],
    txns: NDArray[np.int64],
    seqs: NDArray[np.int64],
    digests: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Take ids that rise as they are, run by run; ask for each of the others in between."""
    found = np.full(len(txns), _FRESH, np.int8)
    falls = np.flatnonzero(~rising)
    high_txns, high_seqs, high_digests = txns[rising], seqs[rising], digests[rising]
    # An id goes on from the one before it among those that rise; of the first, that is the highest known.
    follows = (high_txns == np.append(recent.top_txn, high_txns[:-1])) & (
        high_seqs == np.append(recent.top_seq, high_seqs[:-1]) + 1
    )
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
            )
            recent.extend(run, (int(high_txns[end - 1]), int(high_seqs[end - 1])))
        start, piece = end, until
        if number < len(falls):
            row = int(falls[number])
            found[row] = _PLACES[recent.judge(int(txns[row]), int(seqs[row]), int(digests[row]))]
    return found
