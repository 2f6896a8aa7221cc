"""Shares, the lanes that a task has: small ranges go several to a task, one after another, large ones each to its own.

A task costs tens of milliseconds however few rows it has, and so does a transaction, which the lanes of a task share:
64 lanes in 64 tasks would spend most of a small batch on both.

Guarantee: no shuffle. A task's ranges come in order, each of them whole and in offset order, and which ones they are is
read off the very partitions that Spark will run, never assumed.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.flow.ranges import rdd_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pipeline.flow.ranges import Range

# With so many offsets a task's own cost does not matter any more, and more tasks spread uneven lanes better.
OFFSETS = 20_000


def tasks_for(ranges: Sequence[Range], slots: int) -> int:
    """How many tasks serve these ranges best: all slots of Spark have one, as far as there are ranges."""
    offsets = sum(until - first for _, first, until in ranges)
    return min(len(ranges), max(slots, offsets // OFFSETS))


def shared(rows: DataFrame, tasks: int) -> tuple[Any, list[list[int]]]:
    """The same rows by so many tasks at most; and of each task the places of its ranges, in their order."""
    rdd = rdd_of(rows)
    places = [[place] for place in range(rdd.getNumPartitions())]
    if tasks < len(places):
        none, written = _java(rows.sparkSession.sparkContext._jvm)  # noqa: SLF001
        rdd = rdd.coalesce(tasks, False, none, None)
        made = rdd.toJavaRDD().partitions()
        places = [json.loads(written(made.get(task).parentsIndices())) for task in range(made.size())]
    return rdd, places


@cache
def _java(jvm: Any) -> tuple[Any, Any]:
    """Nothing, as Scala has it, and how Java writes an array of numbers; found once."""
    return jvm.scala.Option.empty(), jvm.java.util.Arrays.toString
