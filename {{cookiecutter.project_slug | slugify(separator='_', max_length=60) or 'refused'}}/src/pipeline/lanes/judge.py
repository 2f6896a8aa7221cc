"""Step 4, judge: what becomes of each row of a chunk.

Guarantee: every row is accounted for: as output, as a dedup hit, as a dead letter with its reason, or as dropped on
purpose by the user's function; the counters of the lane record say which, and nothing is lost in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from pipeline.avro.limits import OVERSIZED, read
from pipeline.errors import SafeStop
from pipeline.lanes.identity import parse
from pipeline.lanes.ledger import Verdict
from pipeline.lanes.sizes import too_large

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.rows import Row
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


def judge(rows: Iterable[Row], ledger: Ledger, *, drop_stale: bool, limits: Mapping[str, int] = NO_LIMITS) -> Judged:
    """Ask the ledger about each row in offset order; the ledger remembers the answers.

    `limits` are the most bytes that a record of each topic may have.
    """
    judged = Judged()
    verdicts, outputs, dead, ask = judged.verdicts, judged.outputs, judged.dead, ledger.judge
    for offset, _, producer_id, epoch, txn, seq, repeated, digest, error, emitted in rows:
        judged.read += 1
        identity = None if repeated else parse(producer_id, epoch, txn, seq)
        if identity is None:
            dead.append((offset, IDENTITY, "an identity header is missing, repeated or malformed"))
            continue
        verdict = ask(identity, digest)
        verdicts[verdict] += 1
        if verdict is Verdict.FRESH:
            if error is not None:
                dead.append((offset, *read(error)))
            elif emitted and (large := too_large(emitted, limits)) is not None:
                dead.append((offset, OVERSIZED, large))
            elif emitted:
                outputs.extend(emitted)
            else:
                judged.dropped += 1
        elif verdict is not Verdict.DUPLICATE and not (drop_stale and verdict is Verdict.STALE):
            dead.append((offset, str(verdict), DETAILS[verdict]))
    return judged


DETAILS = {
    Verdict.STALE: "older than the recent ids of its producer: cannot be told apart from a duplicate",
    Verdict.OLD_EPOCH: "its producer has been restarted since: sent by a zombie",
    Verdict.CONFLICT: "same identity as an earlier record, other key or value: the first one stands",
}


def check_topics(outputs: Iterable[Sendable], known: Collection[str]) -> None:
    """Refuse what no topic takes before a transaction is begun: it would wait for the topic until its time-out."""
    for unknown in {topic for topic, *_ in outputs}.difference(known):
        msg = (
            f"transform writes to topic {unknown!r}, which is not in output.topics ({', '.join(known)}): "
            f"mend the transform, or add the topic there and run `pipeline provision`"
        )
        raise SafeStop(msg)
