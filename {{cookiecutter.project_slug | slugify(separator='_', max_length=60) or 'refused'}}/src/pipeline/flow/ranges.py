"""Which task has which lane: the offset ranges behind a micro-batch, by task.

Guarantee: every task knows its lane and range without looking at rows. The task's index is not the partition number,
and a range may hold no rows at all; so the map is taken from the batch's own input partitions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE_RDD = "DataSourceRDD"
BATCH_RDD = "KafkaSourceRDD"  # of a read that is no stream
EMPTY_RDD = "EmptyRDD"
# The plan of a frame over rows that exist already: no need to plan how to read them.
ROWS_AS_GIVEN = "LogicalRDD"
# A range as Java writes it: its partition by topic and number, its two offsets, and where it is best read.
WRITTEN = re.compile(r"KafkaOffsetRange\([\w.-]+-(\d+),(\d+),(\d+),\w+(?:\(.*\))?\)")


class Range(NamedTuple):
    """Offsets of one partition, `until` not included."""

    partition: int
    first: int
    until: int


def ranges_of(batch: DataFrame) -> list[Range]:
    """The range of each task of the batch, in the order of the tasks; none if it was planned without any offsets."""
    rdd, name = _source_rdd(rdd_of(batch))
    partitions = items(batch.sparkSession, rdd.partitions())
    if name == BATCH_RDD:
        return [range_of(partition.offsetRange()) for partition in partitions]
    return [_range(partition) for partition in partitions]


def items(spark: SparkSession, array: Any) -> list[Any]:
    """What stands in an array of Java: each item by one call, where py4j's own way asks for the length each time."""
    of_array = spark.sparkContext._jvm.java.lang.reflect.Array  # noqa: SLF001
    return [of_array.get(array, place) for place in range(len(array))]


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


def _range(partition: Any) -> Range:
    inputs = partition.inputPartitions()
    if inputs.size() != 1:
        msg = f"a task of the batch reads {inputs.size()} ranges instead of one; is this another Spark version?"
        raise PipelineError(msg)
    return range_of(inputs.head().offsetRange())


def range_of(offsets: Any) -> Range:
    """By one call: each lane of each batch has its range asked for, one after the other."""
    written = WRITTEN.fullmatch(offsets.toString())
    if written is None:
        return Range(offsets.topicPartition().partition(), offsets.fromOffset(), offsets.untilOffset())
    return Range(*map(int, written.groups()))
