"""A small batch has sequels: what came meanwhile is written by the plan that the batch had, for some seconds.

Between two batches Spark plans anew, writes a text of the plan and keeps its books: as long as the lanes of a small
batch take. A sequel needs nothing of that but other offsets in the plan's source. Those parts of Spark are no API:
where a version has others, and where anything else is in the way, Spark's next batch has what a sequel would have had.

Guarantee: a sequel begins where the lanes stand and ends within the log, its rows are made by the very plan of its
batch, and it is written as any batch is. A batch behind sequels has only what the lanes have not, and ends no earlier
than Spark planned it: so nothing is left over that Spark takes for done.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline.flow.ranges import Given
from pipeline.flow.source import offsets_text
from pipeline.flow.straight import OTHER_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

SOURCE = "MicroBatchScanExec"
# Around what Spark makes one program of. For a few rows it takes longer to write that program, and to find that it is
# the same as before, than to do without.
PROGRAM = {"WholeStageCodegenExec", "InputAdapter"}
# More than this is for Spark to cut: by the bound of a batch, and into more tasks.
SMALL_OFFSETS = 20_000


class _OtherPlanError(Exception):
    """Not as this version of Spark makes it."""


UNUSABLE = (*OTHER_VERSION, _OtherPlanError)


def asks_for_time(frame: DataFrame) -> bool:
    """Whether a stream's rows depend on the time of their batch: that of a sequel would be seconds too old."""
    jvm: Any = frame.sparkSession.sparkContext._jvm  # noqa: SLF001  plans have no Python face
    catalyst = jvm.org.apache.spark.sql.catalyst
    try:
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        if plan.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
            return True
        # Texts that mean a time, as 'now' and 'today': Spark puts that in their place with each plan that it makes.
        plan = catalyst.optimizer.ReplaceExpressions.apply(plan)
        return not catalyst.optimizer.SpecialDatetimeValues.apply(plan).fastEquals(plan)
    except UNUSABLE:
        return True


class Sequels:
    """The plan of a stream's newest batch, over other offsets of its source."""

    def __init__(self, spark: SparkSession, topic: str, most_offsets: int) -> None:
        """Before the first batch; `most_offsets` may be in one."""
        self._spark, self._topic = spark, topic
        # Spark is never left behind by more than its next batch reaches, else that one would have nothing to do, and
        # the next ones neither. So from what it has planned on, this many may be in sequels.
        self._behind = most_offsets // 2
        self._query: Any = None
        self._batch_id = -1
        self._plan: _Plan | None = None
        self._ahead = False  # the lanes, of Spark

    def begin(self, batch_id: int, next_offsets: Mapping[int, int]) -> Given | None:
        """A batch begins: its rows without those that earlier sequels wrote; nothing if it is as Spark planned it."""
        self._batch_id, self._plan = batch_id, None
        if not self._ahead:
            return None
        try:
            plan = self._planned()
            first, until = plan.ranges
            if first.keys() != next_offsets.keys() or any(next_offsets[lane] < first[lane] for lane in first):
                return None  # a gap: the lanes' own writers stop at it
            self._ahead = first != next_offsets
            if not self._ahead:
                return None
            until = {lane: max(offset, next_offsets[lane]) for lane, offset in until.items()}
            return plan.over(next_offsets, until, small=_offsets(next_offsets, until) <= SMALL_OFFSETS)
        except UNUSABLE:
            return None

    def rows(self, next_offsets: Mapping[int, int], ends: Mapping[int, int]) -> Given | None:
        """What came behind the batch, up to these ends; nothing if there is none, or if it is for Spark to cut."""
        if not 0 < _offsets(next_offsets, ends) <= min(SMALL_OFFSETS, self._behind):
            return None
        try:
            plan = self._planned()
            _, planned = plan.ranges
            if _offsets(planned, ends) > self._behind:
                return None
            rows = plan.over(next_offsets, ends, small=True)
        except UNUSABLE:
            return None
        self._ahead = True
        return rows

    def _planned(self) -> _Plan:
        """What Spark runs of this batch."""
        if self._plan is None:
            execution = self._execution()
            if execution.currentBatchId() != self._batch_id:
                msg = f"the newest plan is that of batch {execution.currentBatchId()}, not of {self._batch_id}"
                raise _OtherPlanError(msg)
            self._plan = _Plan(execution.executedPlan(), self._topic)
        return self._plan

    def _execution(self) -> Any:
        if self._query is None:
            found = self._spark.streams.active
            if len(found) != 1:
                msg = f"{len(found)} streams run"
                raise _OtherPlanError(msg)
            self._query = found[0]._jsq.streamingQuery()  # noqa: SLF001  plans have no Python face
        return self._query.lastExecution()


class _Plan:
    """One batch as Spark runs it: steps, one behind the other, over the source."""

    def __init__(self, plan: Any, topic: str) -> None:
        """Go down to the source."""
        self._topic = topic
        self._steps: list[tuple[Any, bool]] = []  # each, and whether it is there for the program alone
        while (name := plan.getClass().getSimpleName()) != SOURCE:
            children = plan.children()
            if children.size() != 1:
                msg = f"{name} has {children.size()} children"
                raise _OtherPlanError(msg)
            self._steps.append((plan, name in PROGRAM))
            plan = children.head()
        self._source, self._stream = plan, plan.stream()
        self._given = plan.output(), plan.scan(), self._stream
        self._kept = plan.keyGroupedPartitioning(), plan.ordering()

    @cached_property
    def ranges(self) -> tuple[dict[int, int], dict[int, int]]:
        """Where its lanes begin, and where they end."""
        first, until = self._source.start(), self._source.end()
        return self._told(first.json()), self._told(until.json())

    def over(self, first: Mapping[int, int], until: Mapping[int, int], *, small: bool) -> Given:
        """Its rows over these offsets instead."""
        offsets = (self._stream.deserializeOffset(offsets_text(self._topic, offsets)) for offsets in (first, until))
        plan = source = self._source.copy(*self._given, *offsets, *self._kept)
        for step, for_program in reversed(self._steps):
            if not (small and for_program):
                # Never `withNewChildren`: one source is like another to Spark, whatever the offsets.
                plan = step.withNewChildInternal(plan)
        return Given(plan.execute(), source.inputRDD())

    def _told(self, text: str) -> dict[int, int]:
        return {int(lane): offset for lane, offset in json.loads(text)[self._topic].items()}


def _offsets(first: Mapping[int, int], until: Mapping[int, int]) -> int:
    return sum(until[lane] - offset for lane, offset in first.items())
