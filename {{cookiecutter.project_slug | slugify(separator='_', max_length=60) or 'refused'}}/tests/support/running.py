"""A job in a process of its own, as a supervisor sees it: started, watched, signalled, and killed at the latest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.kafka import wait_until
from tests.support.program import settings_file

from pipeline.local.lookout import Lookout
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.settings import Settings

ROOT = Path(__file__).parents[2]
# A cold start of Spark takes 10 s on two idle cores, and several times that on busy ones.
JOB_SECONDS = 120.0


class Running:
    """A job in a process of its own; a context manager that ends it, with all that came of it, at the latest."""

    def __init__(self, settings: Settings, folder: Path, transform: str, environ: Mapping[str, str]) -> None:
        """Start it, as the leader of a session and of a process group; `environ` goes over this process's own."""
        self._exits = ExitStack()
        self._settings = settings
        self._log = folder / "log"
        path = settings_file(folder, settings)
        command = [sys.executable, "-m", "tests.support.run_job", transform, str(path)]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": paths, **environ},
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=ROOT,
            )

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs."""
        if self._process.poll() is None:
            signal_all(tree(self._process.pid), signal.SIGKILL)
            self._process.wait()
        self._exits.close()

    @cached_property
    def _lookout(self) -> Lookout:
        """What its lanes say; asked for only by those who wait for it, since its cluster may be away."""
        return self._exits.enter_context(Lookout(self._settings))

    @property
    def pid(self) -> int:
        """Of the driver's Python process."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for a condition while it runs."""

        def holds() -> object:
            assert self._process.poll() is None, f"ended with {self._process.returncode} before {what}:\n{self.log}"
            return condition()

        try:
            wait_until(holds, JOB_SECONDS, what)
        except AssertionError as error:
            msg = f"{error}\n{self.log}"
            raise AssertionError(msg) from None

    def wait_for_progress(self, offsets: int) -> None:
        """Wait until its lanes have passed so many offsets, summed."""
        self.wait_for(f"{offsets} offsets are passed", lambda: self._lookout.progress() >= offsets)

    def wait_for_open_transaction(self) -> None:
        """Wait until it is in the middle of a transaction."""
        self.wait_for("a transaction is open", self._lookout.open_transactions)

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Signal the driver alone, as a supervisor does, or its process group, as a terminal does."""
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        return self._process.poll()

    def wait(self, seconds: float = JOB_SECONDS) -> int:
        """Wait for its end; returns its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            msg = f"still running after {seconds} s:\n{self.log}"
            raise AssertionError(msg) from None
