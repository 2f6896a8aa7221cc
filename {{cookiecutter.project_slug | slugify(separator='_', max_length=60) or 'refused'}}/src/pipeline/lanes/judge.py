"""Step 4, judge: what becomes of each row of a chunk.

Guarantee: every row is accounted for: as output, as a dedup hit, as a dead letter with its reason, or as dropped on
purpose by the user's function; the counters of the lane record say which, and nothing is lost in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from pipeline.avro.limits import OVERSIZED, read
from pipeline.errors import SafeStop
from pipeline.lanes.recent import CONFLICT, DUPLICATE, FRESH, OLD_EPOCH, STALE, Verdict
from pipeline.lanes.sizes import too_large
from pipeline.lanes.verdicts import UNKNOWN, VERDICTS, verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.rows import Rows
    from pipeline.lanes.transaction import Sendable

IDENTITY = "identity"
NO_LIMITS: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class Judged:
    """A chunk after judgement: what is to be sent, and what is to be counted."""

    read: int = 0
    dropped: int = 0
    verdicts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(map(str, Verdict), 0))
    outputs: list[Sendable] = field(default_factory=list)
    dead: list[tuple[int, str, str]] = field(default_factory=list)  # offset, reason, detail


def judge(parts: Iterable[Rows], ledger: Ledger, *, drop_stale: bool, limits: Mapping[str, int] = NO_LIMITS) -> Judged:
    """Ask the ledger about each row in offset order; the ledger remembers the answers.

    `limits` are the most bytes that a record of each topic may have.
    """
    judged = Judged()
    silent = (FRESH, DUPLICATE, STALE) if drop_stale else (FRESH, DUPLICATE)
    for rows in parts:
        found = verdicts(ledger, rows.stamps, rows.digests)
        counts = np.bincount(found[found >= 0], minlength=len(VERDICTS)).tolist()
        for verdict, count in zip(VERDICTS, counts, strict=True):
            judged.verdicts[verdict] += count
        _settle(rows, found, judged, silent, limits)
    return judged


def accept(parts: Iterable[Rows], limits: Mapping[str, int] = NO_LIMITS) -> Judged:
    """Take each row for a new one, whatever its identity, without asking a ledger."""
    judged = Judged()
    for rows in parts:
        _settle(rows, np.full(len(rows), FRESH, np.int8), judged, (FRESH,), limits)
    return judged


def _settle(
    rows: Rows, found: NDArray[np.int8], judged: Judged, silent: tuple[int, ...], limits: Mapping[str, int]
) -> None:
    """What follows from the verdicts; those that are `silent` make no dead letter."""
    judged.read += len(rows)
    fresh = found == FRESH
    unsent = {row: read(error) for row, error in rows.errors.items() if fresh[row]}
    for row in rows.emitted.with_more_than(min(limits.values())) if limits else ():
        if row not in unsent and fresh[row] and (large := too_large(rows.emitted.of(row), limits)) is not None:
            unsent[row] = (OVERSIZED, large)
    letters = {row: LETTERS[found[row]] for row in np.flatnonzero(~np.isin(found, silent)).tolist()} | unsent
    judged.dead += [(int(rows.offsets[row]), *letters[row]) for row in sorted(letters)]
    fresh[list(unsent)] = False
    judged.dropped += int((fresh & (rows.emitted.counts == 0)).sum())
    judged.outputs += rows.emitted.only(fresh)


LETTERS = {
    UNKNOWN: (IDENTITY, "an identity header is missing, repeated or malformed"),
    STALE: (str(Verdict.STALE), "older than the recent ids of its producer: cannot be told apart from a duplicate"),
    OLD_EPOCH: (str(Verdict.OLD_EPOCH), "its producer has been restarted since: sent by a zombie"),
    CONFLICT: (str(Verdict.CONFLICT), "same identity as an earlier record, other key or value: the first one stands"),
}


def check_topics(outputs: Iterable[Sendable], known: Collection[str]) -> None:
    """Refuse what no topic takes before a transaction is begun: it would wait for the topic until its time-out."""
    for unknown in {output[0] for output in outputs}.difference(known):
        msg = (
            f"transform writes to topic {unknown!r}, which is not in output.topics ({', '.join(known)}): "
            f"mend the transform, or add the topic there and run `pipeline provision`"
        )
        raise SafeStop(msg)
