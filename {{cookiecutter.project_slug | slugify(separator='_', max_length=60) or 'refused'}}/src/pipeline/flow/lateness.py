"""Late events: those at or before the watermark of their batch, known before any window sees them.

Spark drops what is late inside its stateful operators, and only counts it. So late events are told apart in front of
them, by the batch's own watermark: it stands in the checkpoint before the batch runs, so a replay has the same one. The
driver hands it to the tasks as a local property of the job.

Guarantee: an event goes either into the windows or aside, never both, never neither. What goes in lies behind the
watermark of this batch, which is never before that of Spark's operators, so that these have nothing to drop; and no
window or session that has been written can still get an event.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]  # noqa: TC002  PySpark reads the annotations
from pyspark import TaskContext
from pyspark.sql.functions import coalesce, col, lit, pandas_udf, unix_millis, when

from pipeline.errors import PipelineError
from pipeline.flow.source import SOURCE, source_field
from pipeline.lanes.shuffled import TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame

    from pipeline.sections import Windows

PROPERTY = "pipeline.watermark_ms"
ERROR = "_error"
LATE = "_late"


@contextmanager
def watermark(context: SparkContext, milliseconds: int) -> Iterator[None]:
    """Tell the tasks of the jobs that this thread starts meanwhile."""
    context.setLocalProperty(PROPERTY, str(milliseconds))
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, "")


def at_or_before_watermark(milliseconds: Column) -> Column:
    """Whether an event is late, by what the driver told; without a word from it nothing can be judged."""

    def judge(times: pd.Series) -> pd.Series:
        context = TaskContext.get()
        told = context.getLocalProperty(PROPERTY) if context is not None else None
        if not told:
            msg = "no watermark was handed to the task"
            raise PipelineError(msg)
        return times <= int(told)

    return pandas_udf(judge, "boolean")(milliseconds)


def judged(events: DataFrame, windows: Windows) -> DataFrame:
    """Events with why they are set aside, if they are, and whether they are late."""
    late = at_or_before_watermark(coalesce(unix_millis(windows.time), lit(0)))
    return sound(events, windows).withColumn(LATE, col(ERROR).isNull() & late)


def sound(events: DataFrame, windows: Windows) -> DataFrame:
    """Events with why they are dead letters, if they are: this says the log alone."""
    time = unix_millis(windows.time)
    ahead = time > source_field("timestamp") + windows.ahead_seconds * 1000
    error = coalesce(
        col(f"{SOURCE}.error"),
        when(time.isNull(), lit(f"{TIME}: no event time in column {windows.time}")),
        # One event of the year 9999 would close every window that is open.
        when(ahead, lit(f"{TIME}: more than windows.ahead_seconds = {windows.ahead_seconds} ahead of its Kafka time")),
    )
    return events.withColumn(ERROR, error)


def timely(events: DataFrame, windows: Windows) -> DataFrame:
    """The events that windows may count, with their watermark."""
    counted = events.where(col(ERROR).isNull() & ~col(LATE)).drop(ERROR, LATE)
    return counted.withWatermark(windows.time, f"{windows.watermark_seconds} seconds")
