"""Work beside the job, in a thread of its own.

Guarantee: it never holds up a batch and never fails the job: what goes wrong is said once, and once that it is over.
"""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger("pipeline")

# How long the end of the job waits for work in hand; a cluster that does not answer by then is not waited for.
CLOSE_SECONDS = 5.0


class Background:
    """Calls `work` when woken, and again after so many seconds at the latest."""

    def __init__(self, name: str, seconds: float) -> None:
        """Nothing runs before `start`."""
        self.failure = ""
        self._name = name
        self._seconds = seconds
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def work(self) -> None:
        """What is to be done; called in the thread only."""
        raise NotImplementedError

    def end(self) -> None:
        """What is to be tidied up after the last work; called in the thread."""

    def start(self) -> None:
        """Start, or only wake, if it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Do the work now."""
        self._wake.set()

    def close(self) -> None:
        """Do the work a last time, and end."""
        self._closing = True
        self.wake()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _loop(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(self._seconds)
            self._wake.clear()  # before the work: what comes meanwhile wakes it again
            closing = self._closing
            try:
                self.work()
            except Exception as error:  # noqa: BLE001  nothing here may end the job
                self._note(f"{type(error).__name__}: {error}")
            else:
                self._note("")
        self.end()

    def _note(self, failure: str) -> None:
        if failure and not self.failure:
            logger.warning("%s=failing %s", self._name, failure)
        elif self.failure and not failure:
            logger.info("%s=recovered", self._name)
        self.failure = failure
