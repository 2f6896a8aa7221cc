"""The lane writer of the shuffled path: the same six steps, with a token in place of offsets.

    1 fence      as on the lanes path
    2 recall     as on the lanes path
    3 skip       the token of this very batch: the lane has it already
    4 judge      nothing: what reaches a lane here are results, and source records that are set aside
    5 write      results, letters, late records, the lane record with its token last; flush; compare; commit
    6 report     as on the lanes path

Guarantee: the results of a batch and the token that says so are one transaction, so a batch that is run again writes
nothing in the lanes that have it, and all of it in those that have not.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline import __version__
from pipeline.avro.limits import read
from pipeline.errors import PipelineError, SafeStop, Stopped
from pipeline.lanes.judge import IDENTITY, Judged, check_topics
from pipeline.lanes.letters import dead_letters
from pipeline.lanes.recall import Recalled
from pipeline.lanes.recent import Verdict
from pipeline.lanes.record import added
from pipeline.lanes.rows import Chunk
from pipeline.lanes.sizes import too_large
from pipeline.lanes.token import is_written
from pipeline.lanes.writer import RECORD_AND_MARKER, LaneWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.report import Commit
    from pipeline.lanes.token import Planned
    from pipeline.lanes.transaction import Sendable, Transaction

LATE = "late"  # among the verdicts of a lane record
# Reasons of what is set aside here, beside those of the codec.
TIME = "time"


@dataclass
class Part:
    """What a batch holds for one lane."""

    lane: int = -1
    read: int = 0
    kept: int = 0  # came through dedup
    dropped: int = 0  # of these, for which the transform made no output
    stamps: list[int] = field(default_factory=list)  # Kafka timestamps of the source records that count here
    outputs: list[Sendable] = field(default_factory=list)
    dead: list[tuple[int, int, str]] = field(default_factory=list)  # source partition, offset, error
    late: list[tuple[int, int]] = field(default_factory=list)
    late_dropped: int = 0

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Those of the source records that count here, as a commit's ages need them."""
        return np.array(self.stamps, np.int64)


class ShuffledWriter(LaneWriter):
    """Writes one lane's part of a batch, in one transaction."""

    def write_part(self, part: Part) -> None:
        """Commit the part; an empty one advances the lane all the same."""
        self._stop_if_asked()
        self._aside: list[Sendable] = []
        self._part = part
        first, until = (side[self._task.partition] for side in (self._planned.firsts, self._planned.offsets))
        self._write_with_retries(Chunk(first, until, []))

    def _stop_if_asked(self) -> None:
        """A stop is taken until the first lane of a batch begins: what some lanes have, only the same code can finish.

        So the first one leaves a note beside the stop file; on other machines there is neither.
        """
        stop = Path(self._task.stop_file or ".none")
        begun, batch = stop.with_name("begun"), str(self._planned.batch_id)
        if stop.is_file() and not (begun.is_file() and begun.read_text(encoding="ascii") == batch):
            msg = f"lane {self._key.decode()}: stopped on request before batch {batch}"
            raise Stopped(msg)
        if self._task.stop_file:
            with suppress(OSError):
                begun.write_text(batch, encoding="ascii")

    @property
    def _planned(self) -> Planned:
        if self._task.planned is None:
            msg = "a task of the shuffled path without a batch"
            raise PipelineError(msg)
        return self._task.planned

    def _settled(self, until: int) -> None:
        """Never by what was handed over alone: the rule is applied behind the fence."""

    def _six_steps(self, chunk: Chunk, transaction: Transaction, commit: Commit) -> None:  # noqa: ARG002
        with commit.phase("recall"):  # 2
            recalled = self._recalled or self._read()
            lane = self._task.checked(self._decoded(recalled))
            settled = self._attempts.settle(recalled.value)
        if self._has_batch(lane, recalled, transaction):  # 3
            self._take(recalled, skipped=0 if settled else len(self._part.outputs), commit=settled)
            return
        with commit.phase("judge"):  # 4
            self._check(self._part.outputs)
            value = self._encoded(self._advanced(lane))
            self._aside = self._aside or list(self._originals())
        results = Judged(outputs=self._part.outputs)
        describe = partial(commit.describe, [self._part], written=len(results.outputs))
        landed = self._transact(transaction, results, Recalled(value, recalled.end), commit, describe)  # 5
        self._take(Recalled(value, landed + RECORD_AND_MARKER), skipped=0, commit=describe())  # 6

    def _has_batch(self, lane: LaneRecord, recalled: Recalled, transaction: Transaction) -> bool:
        """Apply the rule; an old record may look like a fault, so a stop is proven first."""
        try:
            return is_written(lane.token, self._planned, lane.next_offset, self._task.partition)
        except SafeStop:
            self._prove(recalled, transaction)
            raise

    def _check(self, outputs: list[Sendable]) -> None:
        """A result has no source record to be set aside: one that no topic takes stops the job."""
        check_topics(outputs, self._settings.output.topics)
        large = too_large(outputs, self._task.topic_bytes)
        if large is not None:
            to_do = "raise the limit; or, if no lane has the batch yet, make it smaller"
            msg = f"windows: a result is too large: {large}; {to_do}"
            raise SafeStop(msg)

    def _letters(self, judged: Judged) -> list[Sendable]:  # noqa: ARG002  they stand in the part
        """What was read before the transaction began: reading may take longer than it lives."""
        return self._aside

    def _originals(self) -> Iterator[Sendable]:
        """Dead letters, then late records: both are the source's own bytes, with reason and place in headers."""
        settings, part = self._settings, self._part
        found: dict[int, list[tuple[int, str, str]]] = {}
        for partition, offset, error in part.dead:
            found.setdefault(partition, []).append((offset, *reason(error)))
        limit = self._task.topic_bytes.get(settings.output.dead_letter_topic)
        for partition, dead in sorted(found.items()):
            yield from dead_letters(settings, partition, sorted(dead), limit)
        detail = f"batch {self._planned.batch_id}, watermark {self._planned.watermark_ms} ms"
        late: dict[int, list[tuple[int, str, str]]] = {}
        for partition, offset in part.late:
            late.setdefault(partition, []).append((offset, LATE, detail))
        limit = self._task.topic_bytes.get(settings.late_topic)
        for partition, rows in sorted(late.items()):
            for _, key, value, headers in dead_letters(settings, partition, sorted(rows), limit):
                yield settings.late_topic, key, value, headers

    def _advanced(self, lane: LaneRecord) -> LaneRecord:
        """The lane record after the batch, with its token."""
        task, part, counters = self._task, self._part, lane.counters
        late = len(part.late) + part.late_dropped
        verdicts = {LATE: late}
        if self._settings.dedup.strategy == "window":
            # Records that could be read, less those that came through: both are counted in the lane of their partition.
            verdicts |= {Verdict.FRESH: part.kept, Verdict.DUPLICATE: part.read - part.kept}
        return replace(
            lane,
            next_offset=self._planned.offsets[task.partition],
            counters=replace(
                counters,
                read=counters.read + len(part.stamps),
                written=counters.written + len(part.outputs),
                dropped=counters.dropped + part.dropped,
                verdicts=added(counters.verdicts, verdicts),
                dead_letters=added(counters.dead_letters, Counter(reason(error)[0] for _, _, error in part.dead)),
                transactions=counters.transactions + 1,
            ),
            code_version=__version__,
            token=self._planned.token(state_rows=task.state_rows, state_bytes=task.state_bytes),
        )


def reason(error: str) -> tuple[str, str]:
    """Reason and detail of what is set aside here."""
    name, _, detail = error.partition(": ")
    return (name, detail) if name in {TIME, IDENTITY} else read(error)
