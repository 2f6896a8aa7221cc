"""A lane record too large to travel with every task of a batch: it is kept in a file for its own task of the next one.

The task that has committed it puts it there. Of records for which none has, the driver does it: those of the first
batch, those committed on another machine, and those of the shuffled path.

Guarantee: a task takes from the file exactly what the driver believes of the lane, told by its hash, or it reads the
lane itself: on another machine there is no such file, and that of another batch, or attempt, has another hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.lanes.recall import Recalled

if TYPE_CHECKING:
    from pipeline.lanes.report import LaneReport

# A record that is handed over travels with every task of the batch; a larger one is kept in a file.
HAND_OVER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a lane record is kept, what it must be, and the offset at which the lane's next record must land."""

    path: str
    digest: bytes
    end: int
    by: str = ""  # as in what is recalled


def keep(folder: Path, partition: int, recalled: Recalled) -> Kept | None:
    """Put a lane record where tasks on this machine find it; without room, or folder, it is kept by Kafka alone."""
    path = folder / f"lane-{partition}"
    try:
        path.write_bytes(recalled.value)
    except OSError:
        return None
    return Kept(str(path), _digest(recalled.value), recalled.end, recalled.by)


def keep_large(folder: Path, report: LaneReport) -> None:
    """Keep what a task has committed, if it is large, for the lane's next one."""
    if len(report.record) > HAND_OVER_BYTES:
        report.kept = keep(folder, report.partition, report.recalled)


def known(told: Recalled | Kept | None) -> Recalled | None:
    """What a task was told of its lane."""
    if not isinstance(told, Kept):
        return told
    try:
        value = Path(told.path).read_bytes()
    except OSError:
        return None
    return Recalled(value, told.end, told.by) if _digest(value) == told.digest else None


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
