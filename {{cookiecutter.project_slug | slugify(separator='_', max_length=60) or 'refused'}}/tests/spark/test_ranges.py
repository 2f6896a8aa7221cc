"""The ranges of a batch, asked for all at once, are those that Java holds; and how many they are costs no call more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import ClientServerConnection

from pipeline.errors import PipelineError
from pipeline.flow import ranges
from pipeline.flow.ranges import BATCH_RDD, SOURCE_RDD, Range, ranges_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGES = [Range(0, 0, 0), Range(17, 2**40, 2**63 - 1), Range(3, 7, 9)]


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    """Return Java."""
    return spark.sparkContext._jvm  # noqa: SLF001  ranges have no Python face


def in_java(jvm: Any, given: Range) -> Any:
    """Return a range as Spark's source makes it; of a topic whose name looks much like one."""
    partition = jvm.org.apache.kafka.common.TopicPartition("in-7.1_KafkaOffsetRange-0", given.partition)
    made = jvm.org.apache.spark.sql.kafka010.KafkaOffsetRange
    return made(partition, given.first, given.until, jvm.scala.Option.empty())


def of_a_stream(jvm: Any, *tasks: list[Range]) -> Any:
    """Return the partitions of a stream's batch; a task reads one range, but nothing in Spark says so."""
    partitions = jvm.java.util.ArrayList()
    for place, own in enumerate(tasks):
        read = jvm.java.util.ArrayList()
        for one in own:
            nothing = jvm.java.util.HashMap()
            read.add(
                jvm.org.apache.spark.sql.kafka010.KafkaBatchInputPartition(in_java(jvm, one), nothing, 1, True, True)  # noqa: FBT003
            )
        inputs = jvm.org.apache.spark.api.python.PythonUtils.toSeq(read)
        partitions.add(jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceRDDPartition(place, inputs))
    return partitions


def of_a_batch(jvm: Any, *given: Range) -> Any:
    """Return the partitions of a read that is no stream."""
    partitions = jvm.java.util.ArrayList()
    for place, one in enumerate(given):
        partitions.add(jvm.org.apache.spark.sql.kafka010.KafkaSourceRDDPartition(place, in_java(jvm, one)))
    return partitions


def test_the_ranges_of_a_stream_come_as_they_are_in_the_order_of_the_tasks(spark: SparkSession, jvm: Any) -> None:
    for given in (RANGES, RANGES[:1], RANGES[::-1]):
        tasks = of_a_stream(jvm, *([one] for one in given))
        assert ranges_in(spark.sparkContext, SOURCE_RDD, tasks) == given


def test_the_ranges_of_another_read_do_as_well(spark: SparkSession, jvm: Any) -> None:
    assert ranges_in(spark.sparkContext, BATCH_RDD, of_a_batch(jvm, *RANGES)) == RANGES


def test_ranges_that_another_version_of_spark_tells_otherwise_are_refused(
    spark: SparkSession, jvm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "WRITTEN", re.compile(r"Range\([^,]*-(3),(\d+),(\d+),"))
    with pytest.raises(PipelineError, match=r"3 tasks of the batch tell their ranges as .*; is this another Spark"):
        ranges_in(spark.sparkContext, BATCH_RDD, of_a_batch(jvm, *RANGES))


@pytest.mark.parametrize("name", [SOURCE_RDD, BATCH_RDD])
def test_without_tasks_there_are_none(spark: SparkSession, jvm: Any, name: str) -> None:
    assert ranges_in(spark.sparkContext, name, jvm.java.util.ArrayList()) == []


@pytest.mark.parametrize("tasks", [(RANGES[:1], []), (RANGES[:1], RANGES[:2]), ([], RANGES[:1])])
def test_a_task_that_does_not_read_one_range_is_refused(
    spark: SparkSession, jvm: Any, tasks: tuple[list[Range], ...]
) -> None:
    counts = [len(own) for own in tasks]
    with pytest.raises(PipelineError, match=re.escape(f"read {counts} ranges instead of one each")):
        ranges_in(spark.sparkContext, SOURCE_RDD, of_a_stream(jvm, *tasks))


def test_many_ranges_take_no_more_calls_than_one(
    spark: SparkSession, jvm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, many = (of_a_stream(jvm, *([Range(lane, 0, 1)] for lane in range(count))) for count in (1, 50))
    ranges_in(spark.sparkContext, SOURCE_RDD, one)  # finds out how to ask
    sent = ClientServerConnection.send_command
    calls: list[int] = []

    def counted(self: ClientServerConnection, command: str) -> str:
        calls[-1] += not command.startswith("m\nd")  # what is no longer used here is told in between, at any time
        return str(sent(self, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    for tasks, count in ((one, 1), (many, 50)):
        calls.append(0)
        assert len(ranges_in(spark.sparkContext, SOURCE_RDD, tasks)) == count
    assert 0 < calls[0] == calls[1]
