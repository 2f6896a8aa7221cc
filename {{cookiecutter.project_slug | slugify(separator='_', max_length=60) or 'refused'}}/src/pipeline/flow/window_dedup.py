"""`window` dedup: any id, known for a bounded time, over the whole topic.

Guarantee: no row is lost, however late it is or however far one partition is behind the others. Spark forgets an id by
the time of the batch that brought it, not by any time in the data: it is the same for all rows of a batch, it is stored
with the batch, so a replay has it too, and it lies behind the watermark, so that no row can be late by it.

Which of several copies in one batch Spark meets first is for its shuffle to say, and a replay may say otherwise: it is
asked only which ids are new. Of each of these the first copy by its place in the source is taken, always the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import coalesce, col, current_timestamp, lag, lit, when
from pyspark.sql.window import Window

from pipeline.flow.lateness import ERROR, LATE
from pipeline.flow.source import SOURCE
from pipeline.lanes.judge import IDENTITY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.sections import Dedup

BATCH_TIME = "_batch_time"
FIRST = "_first"


def batch_time() -> Column:
    """When the batch was planned: one moment for all its rows, and the same again if it is run again."""
    return current_timestamp()


def identified(events: DataFrame, dedup: Dedup) -> DataFrame:
    """Events with why they are set aside, if they are: a record without an id is never taken for another one's copy."""
    nameless = when(col(dedup.id_column).isNull(), lit(f"{IDENTITY}: no id in column {dedup.id_column}"))
    error = coalesce(col(f"{SOURCE}.error"), nameless)
    return events.withColumn(ERROR, error).withColumn(LATE, lit(False))  # noqa: FBT003  a literal of Spark's


def distinct(events: DataFrame, dedup: Dedup) -> DataFrame:
    """The ids of sound events that are not known, each once: known are those that came within the horizon."""
    timed = events.where(col(ERROR).isNull()).withColumn(BATCH_TIME, batch_time()).select(dedup.id_column, BATCH_TIME)
    bounded = timed.withWatermark(BATCH_TIME, f"{dedup.horizon_seconds} seconds")
    return bounded.dropDuplicatesWithinWatermark([dedup.id_column]).drop(BATCH_TIME)


def first_copies(events: DataFrame, new: DataFrame, dedup: Dedup) -> DataFrame:
    """All events of a batch as the user's function gets them, with what becomes of them noted in `_source`.

    `error` says why one is set aside; `digest`, which nothing else needs here, is 1 in the first copy of an id that is
    new, by its place in the source, and 0 in all others.

    By a union and not by a join: that need not read its other side where it has no events, and Spark's state goes on
    only if all of it is read.
    """
    offset = col(f"{SOURCE}.offset")
    apart = when(col(ERROR).isNotNull(), offset)  # what is set aside is no copy of anything
    # A new id has no place, and comes before its copies.
    copies = Window.partitionBy(dedup.id_column, apart).orderBy(f"{SOURCE}.partition", offset)
    is_first = coalesce(lag(col(SOURCE).isNull()).over(copies), lit(0).cast("boolean"))
    marked = events.unionByName(new, allowMissingColumns=True).withColumn(FIRST, is_first)
    noted = col(SOURCE).withField("error", col(ERROR)).withField("digest", col(FIRST).cast("long"))
    return marked.where(col(SOURCE).isNotNull()).withColumn(SOURCE, noted).drop(ERROR, LATE, FIRST)
