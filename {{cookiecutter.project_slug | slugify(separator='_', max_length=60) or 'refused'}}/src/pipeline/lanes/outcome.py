"""How transactions end: one outcome for each attempt, also for a commit whose answer never came.

Guarantee: an attempt is counted once, when its outcome is known. An uncertain commit is settled by the log alone:
committed if its lane record is recalled; not committed once a later attempt has proven, by its compare, that another
record ends the lane. A recall alone would not do: it may be out of date.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from pipeline.kafka import Abortable, Fenced
from pipeline.lanes.transaction import Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.kafka import TransactionFailed
    from pipeline.lanes.report import Commit

TIMED_OUT_CODES = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001  confluent-kafka exports librdkafka's local codes with this underscore
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
    }
)


class Outcome(StrEnum):
    """How one attempt to write a chunk ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "fenced"
    TIMED_OUT = "timed_out"
    MOVED = "moved"
    FAILED = "failed"
    UNKNOWN_COMMITTED = "unknown_committed"
    UNKNOWN_NOT_COMMITTED = "unknown_not_committed"


@dataclass(slots=True)
class Tried:
    """A commit that was called: the lane record in it, what to report if it happened, and how its call failed."""

    value: bytes
    describe: Callable[[], Commit]
    error: TransactionFailed | None = None
    timed_out: bool = False


class Attempts:
    """Counts the attempts of one task by their outcomes."""

    def __init__(self, counts: dict[str, int], timeout_seconds: float) -> None:
        """Outcomes are added to `counts`; a transaction open for longer than the time-out was ended by the broker."""
        self._counts = counts
        self._timeout = timeout_seconds
        self._began: float | None = None
        self._tried: Tried | None = None

    def began(self) -> None:
        """A transaction is open."""
        self._began = time.monotonic()

    def committing(self, value: bytes, describe: Callable[[], Commit]) -> None:
        """The compare passed, and commit is called next: so what was uncertain before did not happen."""
        if self._tried is not None and self._tried.error is not None:
            told = isinstance(self._tried.error, Abortable | Fenced)
            known = outcome_of(self._tried.error, timed_out=self._tried.timed_out)
            self._count(known if told else Outcome.UNKNOWN_NOT_COMMITTED)
        self._tried = Tried(value, describe)

    def committed(self) -> None:
        """The commit was confirmed."""
        self._tried = self._began = None
        self._count(Outcome.COMMITTED)

    def failed(self, error: TransactionFailed) -> None:
        """The attempt failed; if commit had been called, the outcome is left to the log."""
        timed_out = self._began is not None and time.monotonic() - self._began >= self._timeout
        self._began = None
        if self._tried is not None and self._tried.error is None:
            self._tried.error, self._tried.timed_out = error, timed_out
        else:
            self._count(outcome_of(error, timed_out=timed_out))

    def settle(self, recalled: bytes) -> Commit | None:
        """What the uncertain commit wrote, if it is what the lane now holds."""
        if self._tried is None or self._tried.value != recalled:
            return None
        commit, self._tried = self._tried.describe(), None
        self._count(Outcome.UNKNOWN_COMMITTED)
        return commit

    def _count(self, outcome: Outcome) -> None:
        self._counts[outcome] = self._counts.get(outcome, 0) + 1


def outcome_of(error: TransactionFailed, *, timed_out: bool = False) -> Outcome:
    """The outcome of an attempt that certainly did not commit."""
    if isinstance(error, Moved):
        return Outcome.MOVED
    cause = error.__cause__
    if timed_out or (isinstance(cause, KafkaException) and cause.args[0].code() in TIMED_OUT_CODES):
        return Outcome.TIMED_OUT
    if isinstance(error, Fenced):
        return Outcome.FENCED
    return Outcome.ABORTED if isinstance(error, Abortable) else Outcome.FAILED
