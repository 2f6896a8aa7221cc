"""Delivery that is less than exactly-once, by setting: the six steps of `writer.py` with another step 5.

    at-least-once    4 nothing is judged   5 output, then progress     a crash between them repeats the output
    at-most-once     4 as ever             5 progress, then output     a crash between them loses the output

Guarantee: of at-least-once, nothing is lost; of at-most-once, nothing is repeated. Progress is the lane record in a
transaction of its own in both, fenced and compared: so the newest run wins here too, next offsets never fall, counters
count no record twice, and a job may be set to another delivery without starting afresh. The output is outside of every
transaction, sent by an idempotent producer: a reader sees each record as soon as it is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from pipeline.address import made
from pipeline.denied import denial
from pipeline.faults import fault_point
from pipeline.kafka import Fatal, mapped, producer_config, with_room
from pipeline.lanes.judge import Judged, accept
from pipeline.lanes.transaction import CAUSES_CHARACTERS, MARGIN_SECONDS
from pipeline.lanes.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import KafkaError, Message

    from pipeline.errors import Denied
    from pipeline.lanes.ledger import Ledger
    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import Commit
    from pipeline.lanes.rows import Rows
    from pipeline.lanes.task import LaneTask
    from pipeline.lanes.transaction import Sendable, Transaction

BETWEEN = "between output and progress"
TRANSACTIONAL = ("transactional.id", "transaction.timeout.ms")


def writer_of(task: LaneTask) -> LaneWriter:
    """The writer of a lane, by the setting `delivery.semantics`."""
    kinds = {"exactly-once": LaneWriter, "at-least-once": AtLeastOnce, "at-most-once": AtMostOnce}
    return kinds[task.settings.delivery.semantics](task)


class Outlet:
    """An idempotent producer without a transaction: what it delivers is visible at once, and stays."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Take a transaction's configuration, but for what makes it one."""
        plain = {key: value for key, value in config.items() if key not in TRANSACTIONAL}
        self._name = config["transactional.id"]
        self._seconds = config["transaction.timeout.ms"] / 1000 + MARGIN_SECONDS
        self._producer = made(Producer, {**plain, "enable.idempotence": True})
        self._failures: list[str] = []
        self._denied: Denied | None = None

    def send(self, *parts: Iterable[Sendable]) -> None:
        """Deliver all of it, or say what was not delivered."""
        with mapped(f"{self._name}: produce"):
            for part in parts:
                for topic, key, value, headers in part:
                    with_room(
                        self._producer, self._seconds, topic, value, key, headers=headers or [], on_delivery=self._note
                    )
            left = self._producer.flush(self._seconds)
        if self._denied is not None:
            raise self._denied
        if self._failures or left:
            causes = "; ".join(dict.fromkeys(self._failures)) or f"{left} records without a report"
            msg = f"{self._name}: not delivered: {causes[:CAUSES_CHARACTERS]}"
            raise Fatal(msg)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            needs = f"Write on Topic {message.topic()}"
            self._denied = self._denied or denial(error, f"{self._name}: produce to {message.topic()}", needs)
            self._failures.append(f"{message.topic()} [{message.partition()}]: {error.name()}: {error.str()}")


class WeakerWriter(LaneWriter):
    """What both have in common: the output goes another way than the progress."""

    def _output(self, judged: Judged) -> None:
        name = self._settings.transactional_id(self._task.partition)
        outlet = Outlet(producer_config(self._settings, name, self._task.batch_bytes))
        outlet.send(judged.outputs, self._letters(judged))


class AtLeastOnce(WeakerWriter):
    """Nothing is lost: progress is noted only once the output is delivered."""

    def _judge(self, parts: list[Rows], ledger: Ledger) -> Judged:  # noqa: ARG002  nothing is asked of it
        """Take every record for a new one; identities are not looked at."""
        return accept(parts, self._task.topic_bytes)

    def _transact(
        self,
        transaction: Transaction,
        judged: Judged,
        record: Recalled,
        commit: Commit,
        describe: Callable[[], Commit],
    ) -> int:
        with commit.phase("produce"):
            self._output(judged)
        fault_point(BETWEEN)
        return super()._transact(transaction, Judged(), record, commit, describe)


class AtMostOnce(WeakerWriter):
    """Nothing is repeated: the output is sent only once its range is settled, and never a second time."""

    def _transact(
        self,
        transaction: Transaction,
        judged: Judged,
        record: Recalled,
        commit: Commit,
        describe: Callable[[], Commit],
    ) -> int:
        landed = super()._transact(transaction, Judged(), record, commit, describe)
        fault_point(BETWEEN)
        # If this fails, what was not delivered is lost: the lane has moved on, and a retry skips it.
        with commit.phase("produce"):
            self._output(judged)
        return landed
