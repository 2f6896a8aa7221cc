"""Which task has which lane: the offset ranges behind a micro-batch, by task.

Guarantee: every task knows its lane and range without looking at rows. The task's index is not the partition number,
and a range may hold no rows at all; so the map is taken from the batch's own input partitions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from pipeline.errors import PipelineError
from pipeline.flow.each import Each

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

SOURCE_RDD = "DataSourceRDD"
BATCH_RDD = "KafkaSourceRDD"  # of a read that is no stream
EMPTY_RDD = "EmptyRDD"
# The plan of a frame over rows that exist already: no need to plan how to read them.
ROWS_AS_GIVEN = "LogicalRDD"
# How a task's partition tells the ranges that it reads, how many they are, and how Java writes a range.
TO_RANGE = {SOURCE_RDD: ("inputPartitions", "head", "offsetRange"), BATCH_RDD: ("offsetRange",)}
TO_COUNT = ("inputPartitions", "size")
WRITTEN = re.compile(r"KafkaOffsetRange\([^,()]*-(\d+),(\d+),(\d+),")
# How that is asked for, for as long as its Spark runs.
_ASKED: WeakKeyDictionary[SparkContext, dict[tuple[str, ...], Each]] = WeakKeyDictionary()


class Range(NamedTuple):
    """Offsets of one partition, `until` not included."""

    partition: int
    first: int
    until: int


class Given(NamedTuple):
    """Rows as Spark computes them, partition by partition, and its source below them, where that is known."""

    rdd: Any
    source: Any = None


def ranges_of(batch: DataFrame) -> list[Range]:
    """The range of each task of the batch, in the order of the tasks; none if it was planned without any offsets."""
    return ranges_below(batch.sparkSession.sparkContext, rdd_of(batch))


def ranges_below(context: SparkContext, rdd: Any) -> list[Range]:
    """The same, of what a batch is computed by."""
    source, name = _source_rdd(rdd)
    return [] if name == EMPTY_RDD else ranges_in(context, name, source.toJavaRDD().partitions())


def ranges_in(context: SparkContext, name: str, partitions: Any) -> list[Range]:
    """What a list of partitions of the source tells."""
    tasks = partitions.size()
    if not tasks:
        return []
    if name == SOURCE_RDD and set(counts := asked(context, partitions, TO_COUNT).of(partitions)) - {1}:
        msg = f"tasks of the batch read {counts} ranges instead of one each; is this another Spark version?"
        raise PipelineError(msg)
    text = asked(context, partitions, TO_RANGE[name]).text(partitions)
    ranges = [Range(*map(int, numbers)) for numbers in WRITTEN.findall(text)]
    if len(ranges) != tasks:
        msg = f"{tasks} tasks of the batch tell their ranges as {text}; is this another Spark version?"
        raise PipelineError(msg)
    return ranges


def asked(context: SparkContext, partitions: Any, steps: tuple[str, ...]) -> Each:
    """How a list of partitions is asked; that is found out once, of the first."""
    known = _ASKED.setdefault(context, {})
    if steps not in known:
        known[steps] = Each(context, partitions.get(0), steps)
    return known[steps]


def rdd_of(frame: DataFrame) -> Any:
    """What a frame is computed by, partition by partition; of a stream's batch, what the stream itself has made."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001  lineage has no Python face
    plan = execution.logical()
    return plan.rdd() if plan.getClass().getSimpleName() == ROWS_AS_GIVEN else execution.toRdd()


def _source_rdd(rdd: Any) -> tuple[Any, str]:
    """Walk the lineage down to Spark's source; a lanes batch has exactly one parent at each step."""
    while (name := rdd.getClass().getSimpleName()) not in {SOURCE_RDD, BATCH_RDD, EMPTY_RDD}:
        parents = rdd.dependencies()
        if parents.size() != 1:
            msg = f"the batch's lineage branches at {rdd.getClass().getName()}; is this another Spark version?"
            raise PipelineError(msg)
        rdd = parents.head().rdd()
    return rdd, name
