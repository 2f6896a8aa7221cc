"""Shares, the lanes that a task has: small ranges go several to a task, one after another, large ones each to its own.

A task costs tens of milliseconds however few rows it has, and so does a transaction, which the lanes of a task share:
64 lanes in 64 tasks would spend most of a small batch on both.

Guarantee: no shuffle. A task's ranges come in order, each of them whole and in offset order, and which ones they are is
read off the very partitions that Spark will run, never assumed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.flow.ranges import asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from pipeline.flow.ranges import Range

# With so many offsets a task's own cost does not matter any more, and more tasks spread uneven lanes better.
OFFSETS = 20_000
# How the partition of a task tells which of the partitions below it are its own.
TO_PLACES = ("parentsIndices",)


def tasks_for(ranges: Sequence[Range], slots: int) -> int:
    """How many tasks serve these ranges best: all slots of Spark have one, as far as there are ranges."""
    offsets = sum(until - first for _, first, until in ranges)
    return min(len(ranges), max(slots, offsets // OFFSETS))


def shared(context: SparkContext, rdd: Any, tasks: int) -> tuple[Any, list[list[int]]]:
    """The same rows by so many tasks at most; and of each task the places of its ranges, in their order."""
    places = [[place] for place in range(rdd.getNumPartitions())]
    if tasks < len(places):
        rdd = rdd.coalesce(tasks, False, _none(context._jvm), None)  # noqa: SLF001
        made = rdd.toJavaRDD().partitions()
        places = asked(context, made, TO_PLACES).of(made)
    return rdd, places


@cache
def _none(jvm: Any) -> Any:
    """Nothing, as Scala has it; found once."""
    return jvm.scala.Option.empty()
