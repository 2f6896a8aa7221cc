"""Step by step for several lanes: the writer of a task that commits them together (`together.py`).

    1 fence      a fresh producer takes the id they are written under; whoever held it is shut out
    2 recall     every lane's record, handed over or read
    3 skip       per lane, as ever
    4 judge      per lane, by its own ledger; of a record that was handed over, while rows of the next lane are awaited
    5 write      outputs and dead letters of all lanes, then every lane's record; flush; compare each; commit
    6 report     per lane; what concerns the transaction stands in the first

Guarantee: one decision of the broker makes all that is in hand visible, or nothing of it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import Stopped
from pipeline.faults import fault_point
from pipeline.kafka import until_given_up
from pipeline.lanes.fresh import Fresh
from pipeline.lanes.outcome import Attempts
from pipeline.lanes.recall import Recalled
from pipeline.lanes.report import LaneReport
from pipeline.lanes.together import ShareLane, Together
from pipeline.lanes.writer import RECORD_AND_MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.kafka import TransactionFailed
    from pipeline.lanes.report import Commit
    from pipeline.lanes.rows import Chunk
    from pipeline.lanes.task import LaneTask
    from pipeline.lanes.together import Part

# What may be in hand of some lanes when rows of the next are taken; more is committed first.
HELD_BYTES = 16 * 1024 * 1024
# Originals of dead letters are read within the transaction, one lane after another: of more lanes it would take long.
LETTER_LANES = 16
READ_AT_ONCE = 8


class ShareWriter:
    """Writes the ranges of the lanes of one task."""

    def __init__(self, tasks: list[LaneTask], name: str) -> None:
        """Under this transactional id; nothing is connected before `begin`."""
        self._task = tasks[0]
        self._tasks = {task.partition: task for task in tasks}
        self._limits = self._task.settings.transaction
        # Those whose rows have come; the first has what concerns the transactions.
        self._lanes = {self._task.partition: ShareLane(self._task)}
        self._fresh = Fresh(Together, self._task.settings, name, self._task.batch_bytes)
        self._attempts = Attempts(self._first.outcomes, self._limits.timeout_ms / 1000)
        self._tried: list[int] = []  # lanes of a commit whose outcome is not known
        self._in_hand: dict[int, Chunk] = {}
        self._held = self._letters = 0  # of what is in hand: bytes, and lanes that have dead letters
        self._since = self._judging = 0.0  # when its first rows came, and seconds that it was judged

    @property
    def reports(self) -> list[LaneReport]:
        """One for each lane; what concerns the transaction stands in the first."""
        return [self._lanes[number].report if number in self._lanes else LaneReport(number) for number in self._tasks]

    @property
    def _first(self) -> LaneReport:
        return self._lanes[self._task.partition].report

    def begin(self) -> None:
        """Step 1, ahead of the rows."""
        self._fresh.fence_ahead()

    def has_room(self, partition: int, chunk: Chunk) -> bool:
        """Whether a chunk may go with what is in hand, which then is about as much as one lane alone may have."""
        return not self._in_hand or (
            partition not in self._in_hand
            and len(chunk) + sum(map(len, self._in_hand.values())) <= self._limits.chunk_rows
            and time.monotonic() - self._since <= self._limits.chunk_seconds
            and self._held <= HELD_BYTES
            and self._letters < LETTER_LANES
        )

    def gather(self, partition: int, chunk: Chunk) -> None:
        """Take rows of a lane that has none in hand for the next transaction."""
        started = time.monotonic()
        if not self._in_hand:
            self._since = started
            self._held = self._letters = 0
        if partition not in self._lanes:
            self._lanes[partition] = ShareLane(self._tasks[partition])
        lane = self._lanes[partition]
        lane.gather(chunk)
        self._in_hand[partition] = chunk
        self._held += lane.held
        self._letters += lane.letters > 0
        self._judging += time.monotonic() - started

    def write(self) -> None:
        """Commit what was gathered by one transaction; begun again from the fence as often as it takes."""
        chunks = self._in_hand
        if Path(self._task.stop_file).is_file():
            msg = f"lanes of {self._fresh.name}: stopped on request before they were written"
            raise Stopped(msg)

        def note(error: TransactionFailed) -> None:
            self._first.note_failure(error)
            self._attempts.failed(error)
            self._judging = 0.0
            for lane in chunks:
                self._lanes[lane].doubt()

        until_given_up(lambda attempt: self._write(chunks, attempt), note)
        self._tried, self._in_hand, self._judging = [], {}, 0.0

    def _write(self, chunks: Mapping[int, Chunk], attempt: int) -> None:
        spared = self._spared({lane: chunk.until for lane, chunk in chunks.items()})
        if spared is not None:
            for lane, recalled in spared.items():
                self._lanes[lane].take(recalled, len(chunks[lane]))
            return
        transaction, commit = self._fresh.fenced(attempt)  # 1
        with transaction:
            self._six_steps(chunks, transaction, commit)

    def _spared(self, untils: Mapping[int, int]) -> dict[int, Recalled] | None:
        """What was handed over, if all of it says enough to spare the fence."""
        settled = {lane: self._lanes[lane].settled(until) for lane, until in untils.items()}
        known = {lane: recalled for lane, recalled in settled.items() if recalled is not None}
        return known if len(known) == len(settled) else None

    def _six_steps(self, chunks: Mapping[int, Chunk], transaction: Together, commit: Commit) -> None:
        """Steps 2 to 6, behind the fence."""
        with commit.phase("recall"):  # 2, 3
            found = self._found(chunks)
            parts = {lane: self._lanes[lane].recall(chunk, found[lane], transaction) for lane, chunk in chunks.items()}
            settled = self._attempts.settle(b"".join(parts[lane].recalled.value for lane in self._tried))
        if settled is not None:
            self._first.commits.append(settled)
        moving = {lane: part for lane, part in parts.items() if part.chunk.until > part.lane.next_offset}
        if moving:
            self._move(transaction, moving, commit)
        for lane in parts.keys() - moving.keys():
            own = settled is not None and lane in self._tried  # what it has was written here
            self._lanes[lane].take(parts[lane].recalled, 0 if own else parts[lane].skipped)

    def _found(self, chunks: Mapping[int, Chunk]) -> dict[int, Recalled]:
        """Every lane's record; those that must be read are read side by side."""
        found = {lane: known for lane in chunks if (known := self._lanes[lane].handed_over) is not None}
        unknown = [lane for lane in chunks if lane not in found]
        if unknown:
            with ThreadPoolExecutor(READ_AT_ONCE) as pool:
                found |= zip(unknown, pool.map(lambda lane: self._lanes[lane].read(), unknown), strict=True)
        return found

    def _move(self, transaction: Together, moving: dict[int, Part], commit: Commit) -> None:
        """Steps 4 to 6, of the lanes that have not been there before."""
        with commit.phase("judge"):  # 4
            for lane, part in moving.items():
                self._lanes[lane].judge(part)
        commit.seconds["judge"] += self._judging
        landed = self._transact(transaction, moving, commit)  # 5
        for lane, part in moving.items():  # 6
            by = self._lanes[lane].written_under(self._fresh.name)
            self._lanes[lane].take(Recalled(part.value, landed[lane] + RECORD_AND_MARKER, by), part.skipped)

    def _transact(self, transaction: Together, moving: dict[int, Part], commit: Commit) -> dict[int, int]:
        with commit.phase("produce"):
            transaction.begin()
            self._attempts.began()
            fault_point("after begin")
            for lane, part in moving.items():
                self._lanes[lane].send(part, transaction)
            for lane, part in moving.items():
                self._lanes[lane].put(part, transaction)
            fault_point("after lane record")
            ends = {lane: part.recalled.end for lane, part in moving.items()}
            landed = transaction.flush_and_compare_all(ends, {lane: part.before for lane, part in moving.items()})
            fault_point("after compare")
        rows = [row for part in moving.values() for row in part.rows]
        written = sum(len(part.judged.outputs) for part in moving.values())
        self._tried = list(moving)
        values = b"".join(part.value for part in moving.values())
        self._attempts.committing(values, lambda: commit.describe(rows, written=written))
        fault_point("before commit")
        with commit.phase("commit"):
            transaction.commit()
        fault_point("after commit")
        self._fresh.committed()
        self._attempts.committed()
        self._first.commits.append(commit.describe(rows, written=written))
        return landed
