"""A gate at a fault point: the process that reaches it waits there, until whoever set it up kills it or opens the gate.

Guarantee: it hurts nobody by itself. It holds one process at one place, says so by a file, and lets it go on when
nobody came for a minute. Loaded only where `PIPELINE_FAULTS` names it; see `pipeline.faults`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.faults import VARIABLE

FOLDER, PLACE, NTH = "PIPELINE_GATE_FOLDER", "PIPELINE_GATE_PLACE", "PIPELINE_GATE_NTH"
HITS, HELD, OPEN = "hits", "held", "open"
# Nobody came: a process that was forgotten here must not stay for ever.
HELD_SECONDS = 60.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Gate:
    """Holds the process that comes to a place as the nth of all processes of a job."""

    folder: Path
    place: str
    nth: int

    @property
    def environ(self) -> dict[str, str]:
        """Variables for the job; its Python workers inherit them."""
        self.folder.mkdir()
        return {
            VARIABLE: f"{__name__}:hit",
            FOLDER: str(self.folder),
            PLACE: self.place,
            NTH: str(self.nth),
        }

    def holds(self) -> bool:
        """Whether a process waits there."""
        return (self.folder / HELD).exists()

    def open(self) -> None:
        """Let it go on."""
        (self.folder / OPEN).touch()


def hit(place: str) -> None:
    """What a fault point calls."""
    folder = Path(os.environ[FOLDER])
    if place != os.environ[PLACE] or count(folder / HITS) != int(os.environ[NTH]):
        return
    (folder / HELD).touch()
    deadline = time.monotonic() + HELD_SECONDS
    while time.monotonic() < deadline and not (folder / OPEN).exists():
        time.sleep(LOOK_SECONDS)


def count(path: Path) -> int:
    """Add a byte; returns how many there were at that moment, by whichever process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)
