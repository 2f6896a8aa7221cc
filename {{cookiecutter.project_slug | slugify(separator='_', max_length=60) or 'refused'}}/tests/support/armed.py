"""What an armed fault point does. Loaded by the product only where `PIPELINE_FAULTS` names it; see `Faults`.

The plan is a file, so that a running job can be armed again and again, and so that only one of all its processes
acts: each hit of the planned place adds a byte to a second file, and the hit that adds the nth byte is the one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka import LOOK_SECONDS, wait_until

from pipeline.faults import VARIABLE
from pipeline.local.gate import count
from pipeline.local.processes import signal_all, tree

FOLDER = "PIPELINE_FAULT_FOLDER"
PLAN, HITS, STRUCK, GO = "plan", "hits", "struck", "go"
# A process that waits to be told must not outlive a test that forgot it.
WAIT_SECONDS = 60.0


class Injected(Exception):
    """An error that no code expects."""


@dataclass(frozen=True)
class Faults:
    """Arms the fault points of a job that was started with `environ`; one fault at a time."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """Variables for the job's process; its Python workers inherit them."""
        return {VARIABLE: f"{__name__}:hit", FOLDER: str(self.folder)}

    def arm(self, place: str, action: str, nth: int = 1) -> None:
        """Let the nth hit of a place, counted from now on, do something."""
        for name in (PLAN, HITS, STRUCK, GO):
            (self.folder / name).unlink(missing_ok=True)
        _write(self.folder / PLAN, json.dumps({"place": place, "action": action, "nth": nth}))

    def disarm(self) -> None:
        """Let nothing more happen."""
        (self.folder / PLAN).unlink(missing_ok=True)

    def struck(self) -> int | None:
        """Return the id of the process that was struck, or None if none was yet."""
        try:
            return int((self.folder / STRUCK).read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def go(self) -> None:
        """Let a process that waits go on."""
        (self.folder / GO).touch()


def hit(place: str) -> None:
    """What the product calls at each of its fault points."""
    folder = Path(os.environ[FOLDER])
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    if plan["place"] == place and count(folder / HITS) == plan["nth"]:
        _write(folder / STRUCK, str(os.getpid()))
        ACTIONS[plan["action"]](folder)


def _write(path: Path, text: str) -> None:
    """Whoever sees the file sees all of it."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _job() -> list[int]:
    """The processes of the job; its driver leads the session that all of them are in."""
    return tree(os.getsid(0))


def _kill_worker(_: Path) -> None:
    """Kill this worker; in the driver, which has no rows in hand, all of the job's workers and their parent."""
    if os.getpid() != os.getsid(0):
        os.kill(os.getpid(), signal.SIGKILL)
    signal_all([pid for pid in _job() if b"pyspark.worker" in _command(pid)], signal.SIGKILL)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # ended meanwhile
        return b""


def _kill_job(_: Path) -> None:
    """Kill every process of the job, this one last."""
    signal_all(sorted(_job(), key=lambda pid: pid == os.getpid()), signal.SIGKILL)


def _kill_driver(_: Path) -> None:
    """Kill the driver alone: what it started is left behind, and ends by itself or is fenced."""
    os.kill(os.getsid(0), signal.SIGKILL)


def _raise(_: Path) -> None:
    msg = "injected by a test"
    raise Injected(msg)


def _pause(_: Path) -> None:
    """Stop until the test resumes this process."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(LOOK_SECONDS)  # the signal is delivered before this ends


def _wait(folder: Path) -> None:
    """Wait until the test has prepared what is to happen next."""
    wait_until((folder / GO).exists, WAIT_SECONDS, "the test says go")


ACTIONS = {
    "kill worker": _kill_worker,
    "kill driver": _kill_driver,
    "kill job": _kill_job,
    "raise": _raise,
    "pause": _pause,
    "wait": _wait,
}
