"""Atomicity `batch`: the six steps of `writer.py` for all lanes of a micro-batch at once, in one transaction.

    1 fence      a fresh producer takes the app's batch id; whoever held it is shut out
    2 recall     every lane's record, handed over or read
    3 skip       per lane, as ever
    4 judge      per lane, by its own ledger
    5 write      outputs and dead letters of all lanes, then every lane's record; flush; compare each; commit
    6 report     per lane

Guarantee: one decision of the broker makes all of a batch visible, or nothing of it. The rules of the lanes hold for
each of them: its record must land where its recall saw the end, so a writer of another kind, or of another run, that
came in between is noticed in every lane it touched, and the whole transaction is aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import Stopped
from pipeline.faults import fault_point
from pipeline.kafka import producer_config, until_given_up
from pipeline.lanes.judge import Judged
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.outcome import Attempts
from pipeline.lanes.recall import Recalled
from pipeline.lanes.report import Commit, LaneReport
from pipeline.lanes.transaction import Transaction
from pipeline.lanes.writer import RECORD_AND_MARKER, LaneWriter, advance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import KafkaError, Message

    from pipeline.kafka import TransactionFailed
    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.rows import Chunk, Rows
    from pipeline.lanes.task import LaneTask


class Together(Transaction):
    """A transaction with a lane record in each of several partitions."""

    def __init__(self, config: dict[str, Any], *, name_failures: bool = False) -> None:
        """As any other."""
        super().__init__(config, name_failures=name_failures)
        self._landed: dict[int, int] = {}

    def flush_and_compare_all(self, ends: Mapping[int, int], handed_over: Iterable[int] = ()) -> dict[int, int]:
        """Demand of each lane's record what `flush_and_compare` demands of one; returns their offsets."""
        owed, found = set(handed_over), {}
        for partition, end in ends.items():
            self._lane_offset = self._landed.get(partition)
            found[partition] = self.flush_and_compare(end, marker_owed=partition in owed)
        return found

    def _note_lane_record(self, error: KafkaError | None, message: Message) -> None:
        super()._note_lane_record(error, message)
        if error is None:
            self._landed[message.partition()] = message.offset()


@dataclass
class Part:
    """One lane's part of the batch, from recall to report."""

    lane: LaneRecord
    recalled: Recalled
    handed_over: bool
    rows: list[Rows]
    skipped: int
    judged: Judged = field(default_factory=Judged)
    value: bytes = b""


class BatchLane(LaneWriter):
    """A lane that shares its transaction with others; it keeps the rules of the lane writer."""

    @property
    def partition(self) -> int:
        """Of the source."""
        return self._task.partition

    def recall(self, chunk: Chunk, transaction: Transaction) -> Part:
        """Steps 2 and 3."""
        recalled = self._recalled or self._read()
        lane = self._task.checked(self._decoded(recalled))
        if lane.next_offset < chunk.first:
            self._stop_at_gap(chunk, lane, recalled, transaction)
        rows = [part.since(lane.next_offset) for part in chunk.parts]
        return Part(lane, recalled, self._recalled is not None, rows, len(chunk) - sum(map(len, rows)))

    def judge(self, part: Part, until: int) -> None:
        """Step 4."""
        ledger = Ledger(self._settings.dedup, part.lane.producers)
        part.judged = self._judged(part.rows, ledger)
        part.value = self._encoded(advance(part.lane, until, ledger, part.judged))

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
        self._take(recalled, skipped=skipped)

    def doubt(self) -> None:
        """After a failure the record must be read."""
        self._recalled = None


class BatchWriter:
    """Writes the ranges of all lanes of one batch."""

    def __init__(self, tasks: list[LaneTask]) -> None:
        """Nothing is connected before `write`."""
        self._task = tasks[0]
        self._settings = self._task.settings
        self._lanes = {task.partition: BatchLane(task) for task in tasks}
        self._attempts = Attempts(self._first.outcomes, self._settings.transaction.timeout_ms / 1000)
        self._tried: list[int] = []

    @property
    def reports(self) -> list[LaneReport]:
        """One for each lane; what concerns the transaction stands in the first."""
        return [lane.report for lane in self._lanes.values()]

    @property
    def _first(self) -> LaneReport:
        return self._lanes[self._task.partition].report

    def write(self, chunks: Mapping[int, Chunk]) -> None:
        """Commit all of it by one transaction; begun again from the fence as often as it takes."""
        if Path(self._task.stop_file).is_file():
            msg = f"batch of {self._settings.batch_id}: stopped on request before it was written"
            raise Stopped(msg)

        def note(error: TransactionFailed) -> None:
            self._first.note_failure(error)
            self._attempts.failed(error)
            for lane in self._lanes.values():
                lane.doubt()

        until_given_up(lambda attempt: self._write(chunks, attempt), note)

    def _write(self, chunks: Mapping[int, Chunk], attempt: int) -> None:
        config = producer_config(self._settings, self._settings.batch_id, self._task.batch_bytes)
        transaction = Together(config, name_failures=attempt > 1)
        try:
            self._six_steps(chunks, transaction)
        except BaseException:
            transaction.abandon()
            raise

    def _six_steps(self, chunks: Mapping[int, Chunk], transaction: Together) -> None:
        commit = Commit()
        fault_point("before fence")
        with commit.phase("fence"):  # 1
            transaction.fence()
        fault_point("after fence")
        with commit.phase("recall"):  # 2, 3
            parts = {lane: self._lanes[lane].recall(chunk, transaction) for lane, chunk in chunks.items()}
            settled = self._attempts.settle(b"".join(parts[lane].recalled.value for lane in self._tried))
        if settled is not None:
            self._first.commits.append(settled)
        moving = {lane: part for lane, part in parts.items() if chunks[lane].until > part.lane.next_offset}
        for lane in parts.keys() - moving.keys():
            self._lanes[lane].take(parts[lane].recalled, 0 if settled else parts[lane].skipped)
        if not moving:
            return
        with commit.phase("judge"):  # 4
            for lane, part in moving.items():
                self._lanes[lane].judge(part, chunks[lane].until)
        landed = self._transact(transaction, moving, commit)  # 5
        for lane, part in moving.items():  # 6
            self._lanes[lane].take(Recalled(part.value, landed[lane] + RECORD_AND_MARKER), part.skipped)

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
            landed = transaction.flush_and_compare_all(ends, [lane for lane in moving if moving[lane].handed_over])
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
        self._attempts.committed()
        self._first.commits.append(commit.describe(rows, written=written))
        return landed
