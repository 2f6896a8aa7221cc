"""The lane writer: the six steps by which a lane's rows become visible exactly once.

    1 fence      a fresh producer takes the lane's transactional id; whoever held it is shut out
    2 recall     the lane record and the end of its partition, handed over by the driver or read
    3 skip       rows below the lane's next offset are already written
    4 judge      the ledger tells fresh rows from duplicates, zombies and conflicts
    5 write      outputs, dead letters, the lane record last; flush; compare; commit
    6 report     the lane's cumulative figures, its record and its new end, to the driver

Guarantee: output rows, dead letters and progress are one transaction, and progress never falls; so whatever is
killed, the lane goes on exactly where its last committed transaction ended.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pipeline import __version__
from pipeline.errors import SafeStop, Stopped
from pipeline.faults import fault_point
from pipeline.kafka import until_given_up
from pipeline.lanes.fresh import Fresh
from pipeline.lanes.judge import check_topics, judge
from pipeline.lanes.kept import known
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.letters import dead_letters
from pipeline.lanes.outcome import Attempts
from pipeline.lanes.recall import Recalled, hanging_after, recall
from pipeline.lanes.record import added, decode, encode
from pipeline.lanes.report import Commit, LaneReport
from pipeline.lanes.rows import chunks
from pipeline.lanes.transaction import Moved, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipeline.kafka import TransactionFailed
    from pipeline.lanes.judge import Judged
    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.rows import Chunk, Rows
    from pipeline.lanes.task import LaneTask
    from pipeline.lanes.transaction import Sendable

# The broker's limit counts the record batch: its header and the lane record's key come on top of the value.
BATCH_OVERHEAD_BYTES = 1_024
RECORD_AND_MARKER = 2  # how far a committed transaction moves the end of its lane partition


class LaneWriter:
    """Writes one range of one lane."""

    def __init__(self, task: LaneTask) -> None:
        """Nothing is connected before `write`."""
        self._task = task
        self._settings = task.settings
        self._key = task.key
        self._recalled = known(task.recalled)
        self._read_last: tuple[bytes, LaneRecord] | None = None
        self._own = task.settings.transactional_id(task.partition)
        self._fresh = Fresh(Transaction, task.settings, self._own, task.batch_bytes)
        self.report = LaneReport(task.partition)
        self._attempts = Attempts(self.report.outcomes, task.settings.transaction.timeout_ms / 1000)

    def write(self, batches: Iterable[Rows]) -> None:
        """Commit the range chunk by chunk; an empty range advances the lane all the same."""
        if self._settled(self._task.until) is None:
            self._fresh.fence_ahead()
        limits = self._settings.transaction
        for chunk in chunks(
            batches,
            self._task.first,
            self._task.until,
            max_rows=limits.chunk_rows,
            max_seconds=limits.chunk_seconds,
        ):
            if Path(self._task.stop_file).is_file():
                msg = f"lane {self._key.decode()}: stopped on request before offset {chunk.first}"
                raise Stopped(msg)
            self._write_with_retries(chunk)

    def _write_with_retries(self, chunk: Chunk) -> None:
        def note(error: TransactionFailed) -> None:
            self.report.note_failure(error)
            self._attempts.failed(error)
            self._recalled = None  # whatever was believed of the lane is in doubt: read it

        until_given_up(lambda attempt: self._write_chunk(chunk, attempt), note)

    def _write_chunk(self, chunk: Chunk, attempt: int) -> None:
        if (recalled := self._settled(chunk.until)) is not None:
            self._take(recalled, skipped=len(chunk))
            return
        transaction, commit = self._fresh.fenced(attempt)  # 1
        with transaction:
            self._six_steps(chunk, transaction, commit)

    def _settled(self, until: int) -> Recalled | None:
        """The record that was handed over, if it says enough to spare the fence: progress never falls."""
        recalled = self._recalled
        return None if recalled is None or self._decoded(recalled).next_offset < until else recalled

    def _six_steps(self, chunk: Chunk, transaction: Transaction, commit: Commit) -> None:
        """Steps 2 to 6, behind the fence."""
        with commit.phase("recall"):  # 2
            recalled = self._recalled or self._read()
            lane = self._task.checked(self._decoded(recalled))
            settled = self._attempts.settle(recalled.value)
        if lane.next_offset < chunk.first:
            self._stop_at_gap(chunk, lane, recalled, transaction)
        parts = [part.since(lane.next_offset) for part in chunk.parts]  # 3
        skipped = len(chunk) - sum(map(len, parts))
        if chunk.until <= lane.next_offset:
            self._take(recalled, skipped=0 if settled else skipped, commit=settled)
            return
        with commit.phase("judge"):  # 4
            ledger = Ledger(self._settings.dedup, lane.producers)
            judged = self._judged(parts, ledger)
            value = self._encoded(advance(lane, chunk.until, ledger, judged))
        describe = partial(commit.describe, parts, written=len(judged.outputs))
        landed = self._transact(transaction, judged, Recalled(value, recalled.end), commit, describe)  # 5
        self._take(Recalled(value, landed + RECORD_AND_MARKER), skipped=skipped, commit=describe())  # 6

    def _judged(self, parts: list[Rows], ledger: Ledger) -> Judged:
        judged = self._judge(parts, ledger)
        if into := self._task.into:
            judged.outputs = [(into.get(item[0], item[0]), *item[1:]) for item in judged.outputs]
        check_topics(judged.outputs, self._settings.output.topics)
        return judged

    def _judge(self, parts: list[Rows], ledger: Ledger) -> Judged:
        drop_stale = self._settings.dedup.stale == "drop"
        return judge(parts, ledger, drop_stale=drop_stale, limits=self._task.topic_bytes)

    def _transact(
        self,
        transaction: Transaction,
        judged: Judged,
        record: Recalled,
        commit: Commit,
        describe: Callable[[], Commit],
    ) -> int:
        """Step 5: one transaction for outputs, dead letters and the lane record; returns where the record stands."""
        with commit.phase("produce"):
            transaction.begin()
            self._attempts.began()
            fault_point("after begin")
            transaction.send_all(judged.outputs)
            fault_point("amid produce")
            transaction.send_all(self._letters(judged))
            transaction.put_lane_record(self._settings.lane_topic, self._task.partition, self._key, record.value)
            fault_point("after lane record")
            landed = transaction.flush_and_compare(record.end, self._before)
            fault_point("after compare")
        self._attempts.committing(record.value, describe)
        fault_point("before commit")
        with commit.phase("commit"):
            transaction.commit()
        fault_point("after commit")
        self._fresh.committed()
        self._attempts.committed()
        return landed

    def _letters(self, judged: Judged) -> Iterable[Sendable]:
        limit = self._task.topic_bytes.get(self._settings.output.dead_letter_topic)
        return dead_letters(self._settings, self._task.partition, judged.dead, limit)

    @property
    def _before(self) -> str:
        """The id of the lane's record, if it was handed over: known to be committed, with or without its marker."""
        return "" if self._recalled is None else self._recalled.by or self._own

    def _read(self) -> Recalled:
        settings = self._settings
        return recall(
            settings.output_bootstrap, settings.lane_topic, self._task.partition, self._key, hanging_after(settings)
        )

    def _decoded(self, recalled: Recalled) -> LaneRecord:
        """The lane record of these bytes, taken apart once."""
        if self._read_last is None or self._read_last[0] is not recalled.value:
            self._read_last = recalled.value, decode(recalled.value, self._key)
        return self._read_last[1]

    def _stop_at_gap(self, chunk: Chunk, lane: LaneRecord, recalled: Recalled, transaction: Transaction) -> NoReturn:
        """Rows would be left out. An old record looks alike: the stop is proven first, by a write that is aborted."""
        self._prove(recalled, transaction)
        checkpoint = self._settings.spark.checkpoint or "temporary"
        msg = (
            f"lane {self._key.decode()} stands at offset {lane.next_offset}, but the batch begins at {chunk.first}: "
            f"the checkpoint is ahead of Kafka; delete its folder ({checkpoint}) and start again"
        )
        raise SafeStop(msg)

    def _prove(self, recalled: Recalled, transaction: Transaction) -> None:
        """Before a stop for what a record says: it is the lane's newest, or this raises."""
        if self._recalled is not None:
            msg = f"lane {self._key.decode()}: the record handed over is behind the batch: read it"
            raise Moved(msg)  # what was only handed over may hang, and an abort would undo it
        transaction.begin()
        transaction.put_lane_record(self._settings.lane_topic, self._task.partition, self._key, recalled.value)
        transaction.flush_and_compare(recalled.end)

    def _encoded(self, lane: LaneRecord) -> bytes:
        """Bound the record before anything is written: a ledger too large must not fail in mid transaction."""
        value = encode(lane)
        limit = self._task.max_record_bytes - BATCH_OVERHEAD_BYTES
        if len(value) > limit:
            msg = (
                f"lane {self._key.decode()}: its record of {len(value)} bytes is more than topic "
                f"{self._settings.lane_topic} takes ({limit}); raise its max.message.bytes, or lower dedup.ledger_bytes"
            )
            raise SafeStop(msg)
        return value

    def _take(self, recalled: Recalled, *, skipped: int, commit: Commit | None = None) -> None:
        """Step 6: what the lane is known to be from now on."""
        self._recalled = recalled
        self.report.record = recalled.value
        self.report.end = recalled.end
        self.report.by = recalled.by
        self.report.skipped += skipped
        if commit is not None:
            self.report.commits.append(commit)


def advance(lane: LaneRecord, until: int, ledger: Ledger, judged: Judged) -> LaneRecord:
    """The lane record after a chunk. Its next offset never falls, whatever range a replay brings."""
    counters = lane.counters
    return replace(
        lane,
        next_offset=max(lane.next_offset, until),
        producers=ledger.columns(),
        counters=replace(
            counters,
            read=counters.read + judged.read,
            written=counters.written + len(judged.outputs),
            dropped=counters.dropped + judged.dropped,
            verdicts=added(counters.verdicts, judged.verdicts),
            dead_letters=added(counters.dead_letters, Counter(reason for _, reason, _ in judged.dead)),
            transactions=counters.transactions + 1,
        ),
        code_version=__version__,
    )
