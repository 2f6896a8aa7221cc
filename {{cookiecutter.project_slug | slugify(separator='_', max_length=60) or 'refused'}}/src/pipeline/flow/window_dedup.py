"""`window` dedup: any id, known for a bounded time, over the whole topic.

Guarantee: no row is lost, however late it is or however far one partition is behind the others. Spark forgets an id by
the time of the batch that brought it, not by any time in the data: it is the same for all rows of a batch, it is stored
with the batch, so a replay has it too, and it lies behind the watermark, so that no row can be late by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import coalesce, col, current_timestamp, lit, when

from pipeline.flow.lateness import ERROR, LATE
from pipeline.flow.source import SOURCE
from pipeline.lanes.judge import IDENTITY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.sections import Dedup

BATCH_TIME = "_batch_time"


def batch_time() -> Column:
    """When the batch was planned: one moment for all its rows, and the same again if it is run again."""
    return current_timestamp()


def identified(events: DataFrame, dedup: Dedup) -> DataFrame:
    """Events with why they are set aside, if they are: a record without an id is never taken for another one's copy."""
    nameless = when(col(dedup.id_column).isNull(), lit(f"{IDENTITY}: no id in column {dedup.id_column}"))
    error = coalesce(col(f"{SOURCE}.error"), nameless)
    return events.withColumn(ERROR, error).withColumn(LATE, lit(False))  # noqa: FBT003  a literal of Spark's


def distinct(events: DataFrame, dedup: Dedup) -> DataFrame:
    """The first of all sound events with the same id that come within the horizon."""
    timed = events.where(col(ERROR).isNull()).drop(ERROR, LATE).withColumn(BATCH_TIME, batch_time())
    bounded = timed.withWatermark(BATCH_TIME, f"{dedup.horizon_seconds} seconds")
    return bounded.dropDuplicatesWithinWatermark([dedup.id_column]).drop(BATCH_TIME)
