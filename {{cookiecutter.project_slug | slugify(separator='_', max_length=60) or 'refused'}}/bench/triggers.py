"""How long each trigger of a streaming query took, as Spark itself tells it: the same clock for every kind of sink."""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener


class Triggers(StreamingQueryListener):  # type: ignore[misc]
    """Milliseconds of each trigger of the query that runs, as Spark tells them."""

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self.milliseconds: list[int] = []
        self.ended = threading.Event()

    def begin(self) -> None:
        """Forget the last query."""
        self.milliseconds = []
        self.ended.clear()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's names
        """Nothing to note."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to note."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A trigger is done."""
        self.milliseconds.append(event.progress.durationMs["triggerExecution"])

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ARG002
        """All were told."""
        self.ended.set()
