"""Spark's Kafka source: one lane per partition, in offset order, committed records only.

Guarantee: what is read is what the log holds. Reading starts at the lanes' next offsets, aborted records are never
seen, and a record that retention took before it was read stops the job (`failOnDataLoss`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, struct, unix_millis, xxhash64

from pipeline.address import java_entry
from pipeline.flow.ranges import rdd_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, SparkSession

    from pipeline.settings import Settings

# All that the writer needs of a source record, carried through the user's function in one column.
SOURCE = "_source"
# The source record's key, for user code.
KEY = "_key"

# At the end of the log the Java client waits this long for more, once per partition, and whatever it asks meanwhile
# waits as well. A range is in the log before it is read, so there is nothing to wait for.
FETCH_WAIT_MS = "1"
# Spark throws away what it has fetched beyond a poll, and asks for the ends of the log at each: so a fetch is not much
# larger than what a poll takes of it (`source.max_poll_records`).
FETCH_BYTES = str(1024 * 1024)


def options(settings: Settings) -> dict[str, str]:
    """What both the stream and the audit's batch read by. Never `minPartitions`: it would split a lane."""
    return {
        **{f"kafka.{name}": value for name, value in java_entry(settings.source.bootstrap).items()},
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
        "kafka.max.partition.fetch.bytes": FETCH_BYTES,
        "kafka.enable.metrics.push": "false",  # else Java formats a text about it with each poll
        "kafka.max.poll.records": str(settings.source.max_poll_records),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": f"{settings.app.id}-spark",
    }


def stream(spark: SparkSession, settings: Settings, next_offsets: Mapping[int, int]) -> DataFrame:
    """The source topic from the lanes' next offsets on; by `assign`, so that a new partition cannot slip in."""
    topic = settings.source.topic
    reader = spark.readStream.format("kafka").options(
        **options(settings),
        assign=json.dumps({topic: sorted(next_offsets)}),
        startingOffsets=offsets_text(topic, next_offsets),
        maxOffsetsPerTrigger=str(settings.most_offsets(len(next_offsets))),
    )
    return reader.load()


def batch(spark: SparkSession, settings: Settings, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
    """Given ranges of the source topic, as a batch."""
    topic = settings.source.topic
    reader = spark.read.format("kafka").options(
        **options(settings),
        assign=json.dumps({topic: sorted(ranges)}),
        startingOffsets=offsets_text(topic, {partition: first for partition, (first, _) in ranges.items()}),
        endingOffsets=offsets_text(topic, {partition: until for partition, (_, until) in ranges.items()}),
    )
    return reader.load()


def offsets_text(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets of a topic by partition, as Spark's source reads them."""
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def as_rows(frame: DataFrame) -> DataFrame:
    """A frame over the rows of another, as a stream's batch is one: the plan below it is not the user's to see."""
    return frame_over(rdd_of(frame), frame)


def frame_over(rdd: Any, like: DataFrame) -> DataFrame:
    """Rows of Java as a frame with the columns of another one."""
    spark = like.sparkSession
    made = spark._jsparkSession.internalCreateDataFrame(  # noqa: SLF001  no Python face
        rdd,
        like._jdf.schema(),  # noqa: SLF001
        False,  # noqa: FBT003  not streaming; Java has no named arguments
    )
    return DataFrame(made, spark)


def records(raw: DataFrame) -> DataFrame:
    """Position, headers and digest of each record in `_source`, beside its key and value.

    Only one of its fields is computed. Of two, Spark would make an object for each record, to compute each once, and
    look for a way around it in each batch.
    """
    source = struct("partition", "offset", "timestamp", "headers", xxhash64("key", "value").alias("digest"))
    return raw.select(col("key").alias(KEY), "value", source.alias(SOURCE))


def source_field(name: str) -> Column:
    """A field of `_source` as the lane writer takes it: its time in milliseconds."""
    field = col(f"{SOURCE}.{name}")
    return (unix_millis(field) if name == "timestamp" else field).alias(name)
