"""Which task has which lane: the offset ranges behind a micro-batch, by task.

Guarantee: every task knows its lane and range without looking at rows. The task's index is not the partition number,
and a range may hold no rows at all; so the map is taken from the batch's own input partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE_RDD = "DataSourceRDD"
BATCH_RDD = "KafkaSourceRDD"  # of a read that is no stream
EMPTY_RDD = "EmptyRDD"
# The plan of a frame over rows that exist already: no need to plan how to read them.
ROWS_AS_GIVEN = "LogicalRDD"


class Range(NamedTuple):
    """Offsets of one partition, `until` not included."""

    partition: int
    first: int
    until: int


def ranges_of(batch: DataFrame) -> list[Range]:
    """The range of each task of the batch, in the order of the tasks; none if it was planned without any offsets."""
    rdd = _source_rdd(rdd_of(batch))
    if rdd.getClass().getSimpleName() == BATCH_RDD:
        return [_of(partition.offsetRange()) for partition in rdd.partitions()]
    return [_range(partition) for partition in rdd.partitions()]


def rdd_of(frame: DataFrame) -> Any:
    """What a frame is computed by, partition by partition; of a stream's batch, what the stream itself has made."""
    execution = frame._jdf.queryExecution()  # noqa: SLF001  lineage has no Python face
    plan = execution.logical()
    return plan.rdd() if plan.getClass().getSimpleName() == ROWS_AS_GIVEN else execution.toRdd()


def _source_rdd(rdd: Any) -> Any:
    """Walk the lineage down to Spark's source; a lanes batch has exactly one parent at each step."""
    while rdd.getClass().getSimpleName() not in {SOURCE_RDD, BATCH_RDD, EMPTY_RDD}:
        parents = rdd.dependencies()
        if parents.size() != 1:
            msg = f"the batch's lineage branches at {rdd.getClass().getName()}; is this another Spark version?"
            raise PipelineError(msg)
        rdd = parents.head().rdd()
    return rdd


def _range(partition: Any) -> Range:
    inputs = partition.inputPartitions()
    if inputs.size() != 1:
        msg = f"a task of the batch reads {inputs.size()} ranges instead of one; is this another Spark version?"
        raise PipelineError(msg)
    return _of(inputs.head().offsetRange())


def _of(offsets: Any) -> Range:
    return Range(offsets.topicPartition().partition(), offsets.fromOffset(), offsets.untilOffset())
