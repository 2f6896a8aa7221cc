"""The token: by which a lane of the shuffled path knows whether a batch is already written.

Results of a shuffle have no source offset, so progress is the batch: (query id, batch id, lane count, digest of the
batch's ranges and watermark, digests of code and settings). The token rides in the lane record, in the same transaction
as the results.

Guarantee: a batch is written by a lane exactly once. The token of this very batch: skip. That of the batch before,
whose offsets end where this one begins: write. Anything else (another lane count, another checkpoint, a batch that was
cut otherwise when it ran first, a batch left out) stops the job, with a line that says which. Before the first lane
writes, the rule is applied to all of them: none writes a batch that another one cannot follow, and what some lanes have
of a batch is finished by the code that began it.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import fastavro

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESET = "or give the job another app.id and checkpoint, and provision it, to compute all results anew"


@dataclass(frozen=True, slots=True)
class Token:
    """One batch as a lane committed it; what stands behind `digest` is for people and for the next batch's check."""

    query_id: str
    batch_id: int
    lanes: int
    digest: bytes
    offsets: tuple[int, ...]  # where the batch ends, by source partition
    watermark_ms: int = 0
    state_rows: int = 0  # held by Spark after the batch before
    state_bytes: int = 0
    code: bytes = b""  # digests of what made the results: see `flow/recipe.py`
    settings: bytes = b""


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch as Spark's checkpoint plans it, the same each time that it is run; and by what it is run now."""

    query_id: str
    batch_id: int
    firsts: tuple[int, ...]  # by source partition
    offsets: tuple[int, ...]
    watermark_ms: int
    time_ms: int
    code: bytes = b""
    settings: bytes = b""

    @property
    def digest(self) -> bytes:
        """Sixteen bytes for all of the checkpoint that decides what the batch's results are."""
        text = f"{self.firsts} {self.offsets} {self.watermark_ms} {self.time_ms}"
        return hashlib.sha256(text.encode()).digest()[:16]

    def token(self, *, state_rows: int = 0, state_bytes: int = 0) -> Token:
        """What a lane notes once it has written the batch."""
        lanes = len(self.offsets)
        return Token(
            self.query_id,
            self.batch_id,
            lanes,
            self.digest,
            self.offsets,
            self.watermark_ms,
            state_rows,
            state_bytes,
            self.code,
            self.settings,
        )


def is_written(found: Token | None, planned: Planned, start: int, lane: int) -> bool:
    """The rule: whether the lane has this batch already; raises if it can neither skip nor write it.

    `start` is where a lane without a token begins in its own source partition.
    """
    fault = _fault(found, planned, start, lane)
    if fault:
        raise SafeStop(fault)
    return found is not None and found.batch_id == planned.batch_id


def lanes_with(found: Mapping[int, tuple[Token | None, int]], planned: Planned) -> list[int]:
    """The rule for all lanes, before one of them writes: those that have the batch; raises if any cannot go on.

    `found` holds the token of each lane, and where it begins without one. Lanes that have not a batch which others have
    get it from the same code: a result that another one gives to another lane would be there twice, or not at all. The
    settings say which records count, so they stay until Spark is done with the batch: its state is not, even if all
    lanes are.
    """
    having = [lane for lane, (token, start) in sorted(found.items()) if is_written(token, planned, start, lane)]
    for lane in having:
        token = found[lane][0]
        if token is not None and token.settings != planned.settings:
            raise SafeStop(_begun_otherwise(lane, planned, "settings"))
        if token is not None and token.code != planned.code and len(having) < len(found):
            raise SafeStop(_begun_otherwise(lane, planned, "code"))
    return having


def _begun_otherwise(lane: int, planned: Planned, what: str) -> str:
    return (
        f"lane {lane} has written batch {planned.batch_id} with other {what}, and the batch is not done: finish batch "
        f"{planned.batch_id} with the {what} that began it: go back, `pipeline run --until-caught-up`, then change "
        f"the {what}; {RESET}"
    )


def _fault(found: Token | None, planned: Planned, start: int, lane: int) -> str:
    if found is None:
        return _not_the_first(planned, start, lane)
    if found.lanes != len(planned.offsets):
        return other_lanes(lane, found, len(planned.offsets))
    if found.query_id != planned.query_id:
        return foreign(lane, found, planned.query_id)
    return _diverging(found, planned, lane) if found.batch_id == planned.batch_id else _gap(found, planned, lane)


def _not_the_first(planned: Planned, start: int, lane: int) -> str:
    if planned.batch_id == 0 and planned.firsts[lane] == start:
        return ""
    return (
        f"lane {lane} has written nothing yet and begins at offset {start}, but the checkpoint goes on with batch "
        f"{planned.batch_id} at {planned.firsts[lane]}: it is another job's; name an empty folder in spark.checkpoint"
    )


def _diverging(found: Token, planned: Planned, lane: int) -> str:
    if found.digest == planned.digest:
        return ""
    return (
        f"lane {lane} has written batch {found.batch_id} up to offsets {list(found.offsets)}, but now it ends at "
        f"{list(planned.offsets)}: the replay diverges, the checkpoint was restored from an older copy; "
        f"restore the newest one, {RESET}"
    )


def _gap(found: Token, planned: Planned, lane: int) -> str:
    if found.batch_id == planned.batch_id - 1 and found.offsets == planned.firsts:
        return ""
    return (
        f"lane {lane} stands at batch {found.batch_id}, offsets {list(found.offsets)}, but the checkpoint goes on "
        f"with batch {planned.batch_id} at {list(planned.firsts)}: the two are not of one moment; "
        f"restore the checkpoint or the lane topic that belongs to the other, {RESET}"
    )


def other_lanes(lane: int, found: Token, lanes: int) -> str:
    """The line for a source topic that has got more partitions, and with them more lanes."""
    return (
        f"lane {lane} stands at batch {found.batch_id} of {found.lanes} lanes, but now there are {lanes}: "
        f"results would change their lanes; {RESET.removeprefix('or ')}"
    )


def foreign(lane: int, found: Token, query_id: str) -> str:
    """The line for a checkpoint of another query."""
    return (
        f"lane {lane} was written by query {found.query_id} up to batch {found.batch_id}, but the checkpoint is of "
        f"query {query_id or '(none: it is empty)'}: the state is in the checkpoint alone; restore it, {RESET}"
    )


def encode_token(token: Token) -> bytes:
    """Write the token as its Avro body; it stands behind that of the lane record."""
    out = io.BytesIO()
    body = {name: getattr(token, name) for name in Token.__slots__}
    fastavro.schemaless_writer(out, _schema(), {**body, "offsets": list(token.offsets)})
    return out.getvalue()


def read_token(source: io.BytesIO) -> Token:
    """Read a token from where the body of its lane record ends."""
    body: Any = fastavro.schemaless_reader(source, _schema(), None)
    return Token(**{**body, "offsets": tuple(body["offsets"])})


def token_fault(token: Token, partition: int, next_offset: int) -> str:
    """What contradicts itself in a token, or nothing."""
    held: Sequence[int] = token.offsets
    if len(held) != token.lanes or not 0 <= partition < token.lanes:
        return "its token is of another number of lanes"
    return "" if held[partition] == next_offset else "its token ends at another offset"


@cache
def _schema() -> Any:
    text = resources.files("pipeline.lanes").joinpath("token.avsc").read_text(encoding="utf-8")
    return fastavro.parse_schema(json.loads(text))
