"""Several lanes in one transaction: the six steps of `writer.py` for all lanes of a task at once.

    1 fence      a fresh producer takes the id they are written under; whoever held it is shut out
    2 recall     every lane's record, handed over or read
    3 skip       per lane, as ever
    4 judge      per lane, by its own ledger; of a record that was handed over, while rows of the next lane are awaited
    5 write      outputs and dead letters of all lanes, then every lane's record; flush; compare each; commit
    6 report     per lane; what concerns the transaction stands in the first

The id is that of the lowest lane among them; with atomicity `batch`, where one task has all lanes, the app's batch id.

Guarantee: one decision of the broker makes all of it visible, or nothing. The rules of the lanes hold for each of them:
its record must land where its recall saw the end, so a writer under any id that came in between is noticed in every
lane it touched, and the whole transaction is aborted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import Stopped
from pipeline.faults import fault_point
from pipeline.kafka import until_given_up
from pipeline.lanes.fresh import Fresh
from pipeline.lanes.judge import Judged
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.outcome import Attempts
from pipeline.lanes.recall import Recalled
from pipeline.lanes.transaction import Transaction
from pipeline.lanes.writer import RECORD_AND_MARKER, LaneWriter, advance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError, Message

    from pipeline.kafka import TransactionFailed
    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.report import Commit, LaneReport
    from pipeline.lanes.rows import Chunk, Rows
    from pipeline.lanes.task import LaneTask


class Together(Transaction):
    """A transaction with a lane record in each of several partitions."""

    def __init__(self, config: dict[str, Any], *, name_failures: bool = False) -> None:
        """As any other."""
        super().__init__(config, name_failures=name_failures)
        self._landed: dict[int, int] = {}

    def flush_and_compare_all(self, ends: Mapping[int, int], before: Mapping[int, str]) -> dict[int, int]:
        """Demand of each lane's record what `flush_and_compare` demands of one; returns their offsets."""
        found = {}
        for partition, end in ends.items():
            self._lane_offset = self._landed.get(partition)
            found[partition] = self.flush_and_compare(end, before.get(partition, ""))
        return found

    def _note_lane_record(self, error: KafkaError | None, message: Message) -> None:
        super()._note_lane_record(error, message)
        if error is None:
            self._landed[message.partition()] = message.offset()


@dataclass
class Part:
    """One lane's part of the transaction, from recall to report."""

    chunk: Chunk
    lane: LaneRecord
    recalled: Recalled
    before: str
    rows: list[Rows]
    skipped: int
    judged: Judged = field(default_factory=Judged)
    value: bytes = b""


class ShareLane(LaneWriter):
    """A lane that shares its transaction with others; it keeps the rules of the lane writer."""

    def __init__(self, task: LaneTask) -> None:
        """Nothing is known of its rows."""
        super().__init__(task)
        self.chunk: Chunk | None = None
        self._judged_ahead: Part | None = None

    def gather(self, chunk: Chunk) -> None:
        """Take the lane's rows for the next transaction, and judge them by the record that was handed over, if any."""
        self.chunk, self._judged_ahead = chunk, None
        if self._recalled is not None and chunk.first <= self._decoded(self._recalled).next_offset < chunk.until:
            self._judged_ahead = part = self._part(chunk, self._recalled)
            self._judge_part(part)

    def settled(self, until: int) -> Recalled | None:
        """The record that was handed over, if it says enough to spare the fence."""
        return self._settled(until)

    def recall(self, chunk: Chunk, transaction: Transaction) -> Part:
        """Steps 2 and 3."""
        part = self._part(chunk, self._recalled or self._read())
        self._task.checked(part.lane)
        if part.lane.next_offset < chunk.first:
            self._stop_at_gap(chunk, part.lane, part.recalled, transaction)
        return part

    def judge(self, part: Part) -> None:
        """Step 4, unless it is done."""
        ahead = self._judged_ahead
        if ahead is not None and ahead.recalled is part.recalled and ahead.chunk is part.chunk:
            part.judged, part.value = ahead.judged, ahead.value
        else:
            self._judge_part(part)

    def put(self, part: Part, transaction: Transaction) -> None:
        """Step 5, the lane's last record of it."""
        transaction.put_lane_record(self._settings.lane_topic, self._task.partition, self._key, part.value)

    def send(self, part: Part, transaction: Transaction) -> None:
        """Step 5, all that comes before."""
        transaction.send_all(part.judged.outputs)
        fault_point("amid produce")
        transaction.send_all(self._letters(part.judged))

    def take(self, recalled: Recalled, skipped: int) -> None:
        """Step 6."""
        self.chunk = self._judged_ahead = None
        self._take(recalled, skipped=skipped)

    def written_under(self, name: str) -> str:
        """How a record of this lane is told that was written under an id."""
        return "" if name == self._own else name

    def doubt(self) -> None:
        """After a failure the record must be read."""
        self._recalled = self._judged_ahead = None

    def _part(self, chunk: Chunk, recalled: Recalled) -> Part:
        lane = self._decoded(recalled)
        rows = [part.since(lane.next_offset) for part in chunk.parts]
        return Part(chunk, lane, recalled, self._before, rows, len(chunk) - sum(map(len, rows)))

    def _judge_part(self, part: Part) -> None:
        ledger = Ledger(self._settings.dedup, part.lane.producers)
        part.judged = self._judged(part.rows, ledger)
        part.value = self._encoded(advance(part.lane, part.chunk.until, ledger, part.judged))


class ShareWriter:
    """Writes the ranges of the lanes of one task."""

    def __init__(self, tasks: list[LaneTask], name: str) -> None:
        """Under this transactional id; nothing is connected before `begin`."""
        self._task = tasks[0]
        self._ranges = {task.partition: task.until for task in tasks}
        self._settings = self._task.settings
        self._lanes = {task.partition: ShareLane(task) for task in tasks}
        self._fresh = Fresh(Together, self._settings, name, self._task.batch_bytes)
        self._attempts = Attempts(self._first.outcomes, self._settings.transaction.timeout_ms / 1000)
        self._tried: list[int] = []
        self._judging = 0.0  # seconds, of what is gathered

    @property
    def reports(self) -> list[LaneReport]:
        """One for each lane; what concerns the transaction stands in the first."""
        return [lane.report for lane in self._lanes.values()]

    @property
    def _first(self) -> LaneReport:
        return self._lanes[self._task.partition].report

    @property
    def in_hand(self) -> dict[int, Chunk]:
        """What the next transaction will hold, so far."""
        return {number: lane.chunk for number, lane in self._lanes.items() if lane.chunk is not None}

    def begin(self) -> None:
        """Step 1, ahead of the rows, unless no lane will need it."""
        if self._spared(self._ranges) is None:
            self._fresh.fence_ahead()

    def gather(self, partition: int, chunk: Chunk) -> None:
        """Take rows of a lane that has none in hand for the next transaction."""
        started = time.perf_counter()
        self._lanes[partition].gather(chunk)
        self._judging += time.perf_counter() - started

    def write(self) -> None:
        """Commit what was gathered by one transaction; begun again from the fence as often as it takes."""
        chunks = self.in_hand
        if Path(self._task.stop_file).is_file():
            msg = f"lanes of {self._fresh.name}: stopped on request before they were written"
            raise Stopped(msg)

        def note(error: TransactionFailed) -> None:
            self._first.note_failure(error)
            self._attempts.failed(error)
            for lane in self._lanes.values():
                lane.doubt()

        until_given_up(lambda attempt: self._write(chunks, attempt), note)

    def _write(self, chunks: Mapping[int, Chunk], attempt: int) -> None:
        spared = self._spared({lane: chunk.until for lane, chunk in chunks.items()})
        if spared is not None:
            for lane, recalled in spared.items():
                self._lanes[lane].take(recalled, len(chunks[lane]))
            return
        transaction, commit = self._fresh.fenced(attempt)  # 1
        try:
            self._six_steps(chunks, transaction, commit)
        except BaseException:
            transaction.abandon()
            raise

    def _spared(self, untils: Mapping[int, int]) -> dict[int, Recalled] | None:
        """What was handed over, if all of it says enough to spare the fence."""
        settled = {lane: self._lanes[lane].settled(until) for lane, until in untils.items()}
        known = {lane: recalled for lane, recalled in settled.items() if recalled is not None}
        return known if len(known) == len(settled) else None

    def _six_steps(self, chunks: Mapping[int, Chunk], transaction: Together, commit: Commit) -> None:
        """Steps 2 to 6, behind the fence."""
        with commit.phase("recall"):  # 2, 3
            parts = {lane: self._lanes[lane].recall(chunk, transaction) for lane, chunk in chunks.items()}
            settled = self._attempts.settle(b"".join(parts[lane].recalled.value for lane in self._tried))
        if settled is not None:
            self._first.commits.append(settled)
        moving = {lane: part for lane, part in parts.items() if part.chunk.until > part.lane.next_offset}
        if moving:
            self._move(transaction, moving, commit)
        for lane in parts.keys() - moving.keys():
            self._lanes[lane].take(parts[lane].recalled, 0 if settled else parts[lane].skipped)

    def _move(self, transaction: Together, moving: dict[int, Part], commit: Commit) -> None:
        """Steps 4 to 6, of the lanes that have not been there before."""
        with commit.phase("judge"):  # 4
            for lane, part in moving.items():
                self._lanes[lane].judge(part)
        commit.seconds["judge"] += self._judging
        self._judging = 0.0
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
        self._tried = []
        self._first.commits.append(commit.describe(rows, written=written))
        return landed
