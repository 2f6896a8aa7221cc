"""Several lanes in one transaction: what it is, and what each of them does in it. `share.py` puts the steps together.

They are written under the id of the lowest lane among them; with atomicity `batch`, where one task has all lanes, under
the app's batch id.

Guarantee: the rules of the lanes hold for each of them. Its record must land where its recall saw the end, so a writer
under any id that came in between is noticed in every lane it touched, and the whole transaction is aborted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.faults import fault_point
from pipeline.lanes.judge import Judged
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.transaction import Transaction
from pipeline.lanes.writer import LaneWriter, advance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError, Message

    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.record import LaneRecord
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
        self.flush()
        found = {}
        for lane, end in ends.items():
            found[lane] = self.compare(self._landed.get(lane), end, before.get(lane, ""))
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
    skipped: int  # rows that the lane had already
    judged: Judged = field(default_factory=Judged)
    value: bytes = b""


class ShareLane(LaneWriter):
    """A lane that shares its transaction with others; it keeps the rules of the lane writer."""

    def __init__(self, task: LaneTask) -> None:
        """Nothing is known of its rows."""
        super().__init__(task)
        self._chunk: Chunk | None = None
        self._judged_ahead: Part | None = None

    def gather(self, chunk: Chunk) -> None:
        """Take the lane's rows for the next transaction, and judge them by the record that was handed over, if any."""
        self._chunk, self._judged_ahead = chunk, None
        if self._recalled is not None and chunk.first <= self._decoded(self._recalled).next_offset < chunk.until:
            self._judged_ahead = part = self._part(chunk, self._recalled)
            self._judge_part(part)

    @property
    def held(self) -> int:
        """Bytes in hand: outputs, the lane's record, and what becomes of it."""
        rows = 0 if self._chunk is None else sum(part.size for part in self._chunk.parts)
        known = 0 if self._recalled is None else len(self._recalled.value)
        return rows + known + (0 if self._judged_ahead is None else len(self._judged_ahead.value))

    @property
    def letters(self) -> int:
        """Dead letters in hand, as far as rows are judged."""
        return 0 if self._judged_ahead is None else len(self._judged_ahead.judged.dead)

    def settled(self, until: int) -> Recalled | None:
        """The record that was handed over, if it says enough to spare the fence."""
        return self._settled(until)

    @property
    def handed_over(self) -> Recalled | None:
        """The lane's record, if it need not be read."""
        return self._recalled

    def read(self) -> Recalled:
        """The lane's record, behind a fence."""
        return self._read()

    def recall(self, chunk: Chunk, recalled: Recalled, transaction: Transaction) -> Part:
        """Steps 2 and 3, with the record that was found."""
        part = self._part(chunk, recalled)
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
        over = self._chunk is None or self._chunk.until >= self._task.until
        self._chunk = self._judged_ahead = None
        self._take(recalled, skipped=skipped)
        if over:  # what the report holds is enough: a task may have hundreds of lanes
            self._recalled = self._read_last = None

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
