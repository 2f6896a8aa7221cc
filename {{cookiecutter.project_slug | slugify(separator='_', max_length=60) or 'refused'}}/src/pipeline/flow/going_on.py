"""A batch goes on by sequels, one right behind the other, until nothing or much has come, or a stop.

Guarantee: before each of them the log is looked at. One that ends before its lanes was cut: that stops the job before
new records fill the cut, since no batch of Spark sees it, whose own position is behind that of the lanes.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pipeline.errors import Denied, PipelineError, Unreachable
from pipeline.faults import fault_point
from pipeline.flow.path import next_offsets
from pipeline.flow.preflight import check_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from pipeline.flow.batch import Lanes
    from pipeline.flow.path import Path
    from pipeline.flow.preflight import Checked
    from pipeline.lanes.report import LaneReport
    from pipeline.settings import Settings

# How long a batch may have sequels. Until then Spark does not note its progress: a kept checkpoint is older by so much,
# and a job that goes on from it reads that again, to skip it.
SECONDS = 30.0
# A leader that was just elected may tell an end that is too low, for a moment.
CUT_SECONDS, LOOK_SECONDS = 3.0, 0.2


class GoingOn:
    """The sequels of one batch."""

    def __init__(self, settings: Settings, path: Path, checked: Checked, stopped: Callable[[], bool]) -> None:
        """Its time begins."""
        self._settings, self._path, self._checked, self._stopped = settings, path, checked, stopped
        self._over = time.monotonic() + SECONDS

    def next(self, batch: DataFrame, lanes: Lanes) -> list[LaneReport]:
        """Write what came meanwhile; nothing where that is for Spark's next batch."""
        if time.monotonic() >= self._over or self._stopped():
            return []
        fault_point("before sequel")
        stand = next_offsets(lanes.recalled)
        try:
            ends = self._ends(stand)
            self._checked.watch()
        except PipelineError:
            return []  # the batch itself is whole: whoever looks next, `_wait` or Spark's next batch, waits or tells
        if self._stopped():
            return []
        if not _within(stand, ends):
            with suppress(Unreachable, Denied):
                check_log(self._settings, stand)
            return []
        return self._path.write_more(batch, lanes, stand, ends)

    def _ends(self, stand: Mapping[int, int]) -> Mapping[int, int]:
        """How far the log can be read; asked again for some time where that is not as far as the lanes are."""
        deadline = time.monotonic() + CUT_SECONDS
        while not _within(stand, ends := self._checked.ends()) and time.monotonic() < deadline and not self._stopped():
            time.sleep(LOOK_SECONDS)
        return ends


def _within(stand: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(ends[lane] >= offset for lane, offset in stand.items())
