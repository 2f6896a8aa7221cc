"""What a task of a lane is given: its lane, its range or batch, its run, and what the driver believes of the lane.

Guarantee: a lane record that is not this run's to continue is refused: that of a newer run ends the job, that of an
older one is out of date, and that of a source topic which was created anew stops it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import Replaced, SafeStop
from pipeline.kafka import BATCH_BYTES
from pipeline.lanes.record import lane_key, recreated
from pipeline.lanes.transaction import Moved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.lanes.encoded import OutputSchema
    from pipeline.lanes.kept import Kept
    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.token import Planned
    from pipeline.settings import Settings


@dataclass(frozen=True)
class LaneTask:
    """What a task must know: its lane, its range, the run it belongs to, and what the driver believes of the lane."""

    settings: Settings
    run: int
    topic_id: tuple[int, int]
    partition: int = -1
    first: int = -1
    until: int = -1
    recalled: Recalled | Kept | None = None
    max_record_bytes: int = 1_000_000
    batch_bytes: int = BATCH_BYTES  # what every topic of the transaction takes
    stop_file: str = ""  # on the driver's machine: while it exists, no further chunk is begun
    schemas: Mapping[str, OutputSchema] = field(default_factory=dict)  # by which records of a topic are encoded
    topic_bytes: Mapping[str, int] = field(default_factory=dict)  # the largest record that each topic takes
    stages: int = 0  # of the project's own, between source and user's function
    into: Mapping[str, str] = field(default_factory=dict)  # other topics in place of those that the function names
    # On the shuffled path, in place of a range: the batch, and what Spark's state held after the one before.
    planned: Planned | None = None
    state_rows: int = 0
    state_bytes: int = 0

    @property
    def folder(self) -> Path:
        """On the driver's machine: what is there for this run alone."""
        return Path(self.stop_file).parent

    @property
    def key(self) -> bytes:
        """The name of its lane."""
        return lane_key(self.settings.app.id, self.settings.source.topic, self.partition)

    def checked(self, lane: LaneRecord) -> LaneRecord:
        """Refuse to go on from a record that is not this job's to continue."""
        name = self.key.decode()
        if lane.run > self.run:
            msg = f"replaced by run {lane.run}: lane {name} was taken over while this job was run {self.run}"
            raise Replaced(msg)
        if lane.run < self.run:
            msg = f"lane {name}: read a record of run {lane.run}, but run {self.run} has written since: out of date"
            raise Moved(msg)
        if lane.topic_id != self.topic_id:
            raise SafeStop(recreated(self.settings.source.topic))
        return lane
