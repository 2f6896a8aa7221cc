"""Fresh producers under one transactional id: one for each attempt to write, fenced; the first ahead of its rows.

Guarantee: whoever is handed one holds the id, and it has written nothing yet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

from pipeline.faults import fault_point
from pipeline.kafka import TransactionFailed, producer_config
from pipeline.lanes.report import Commit
from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from pipeline.settings import Settings

Kind = TypeVar("Kind", bound=Transaction)

# A fence right after a commit meets markers that are still being written, and has to ask again.
MARKERS_SECONDS = 0.05


class Fresh(Generic[Kind]):
    """Step 1, as often as it takes, for a writer that commits one transaction after another."""

    def __init__(self, kind: type[Kind], settings: Settings, name: str, batch_bytes: int) -> None:
        """Nothing is connected before the first fence."""
        self.name = name
        self._kind = kind
        self._settings = settings
        self._batch_bytes = batch_bytes
        self._ahead: tuple[Kind, Commit] | TransactionFailed | None = None
        self._last_commit = 0.0

    def fence_ahead(self) -> None:
        """Step 1 while the first rows are on their way: it does not depend on them, and brokers take their time."""
        try:
            self._ahead = self._fence(attempt=1)
        except TransactionFailed as error:
            self._ahead = error  # the first attempt has failed, and the chunk's second begins at the fence

    def fenced(self, attempt: int) -> tuple[Kind, Commit]:
        """A transaction that holds the id, and the time that took."""
        ahead, self._ahead = self._ahead, None
        try:
            if isinstance(ahead, TransactionFailed):
                raise ahead
            return ahead or self._fence(attempt)
        finally:
            del ahead  # or what was raised would keep its frame, this one, and so the producer that was not fenced

    def committed(self) -> None:
        """Note when."""
        self._last_commit = time.monotonic()

    def _fence(self, attempt: int) -> tuple[Kind, Commit]:
        early = self._last_commit + MARKERS_SECONDS - time.monotonic()
        if early > 0:
            time.sleep(early)
        transaction = self._kind(
            producer_config(self._settings, self.name, self._batch_bytes), name_failures=attempt > 1
        )
        commit = Commit()
        fault_point("before fence")
        with commit.phase("fence"):
            transaction.fence()
        fault_point("after fence")
        return transaction, commit
