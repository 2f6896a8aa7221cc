"""Spark's checkpoint: a hint that may be deleted, old, or shared, but never ahead of Kafka.

Guarantee: a checkpoint from which Spark would begin behind the next offset of some lane stops the job at once. The lane
writer would notice only with the next record, and until then the job would look caught up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pipeline.settings import Settings


def location(settings: Settings, scratch: str) -> str:
    """The given place, or a temporary one; a plain path is the driver's, not relative to the JVM's own folder."""
    given = settings.spark.checkpoint
    if not given:
        return f"{scratch}/checkpoint"
    return given if "://" in given else str(Path(given).absolute())


def check_checkpoint(spark: SparkSession, folder: str, settings: Settings, next_offsets: Mapping[int, int]) -> None:
    """Compare where Spark would begin with where the lanes stand."""
    begins = start_of(spark, folder).get(settings.source.topic, {})
    for partition, offset in sorted(next_offsets.items()):
        begin = begins.get(str(partition), 0)
        if begin > offset:
            msg = (
                f"lane {settings.transactional_id(partition)} stands at offset {offset}, but the checkpoint goes on at "
                f"{begin}: it is ahead of Kafka; delete its folder ({folder}) and start again"
            )
            raise SafeStop(msg)


def start_of(spark: SparkSession, folder: str) -> dict[str, dict[str, int]]:
    """The offsets behind the last batch that Spark noted as done, by topic and partition; empty if there is none."""
    apache = spark.sparkContext._jvm.org.apache  # noqa: SLF001  Hadoop's file systems have no Python face
    commits = apache.hadoop.fs.Path(folder, "commits")
    files = commits.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    names = [file.getPath().getName() for file in files.listStatus(commits)] if files.exists(commits) else []
    done = max((int(name) for name in names if name.isdecimal()), default=None)
    batch = apache.hadoop.fs.Path(folder, f"offsets/{done}")
    if done is None or not files.exists(batch):
        return {}
    stream = files.open(batch)
    try:
        text = apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    # Version, metadata, and a line for each source: there is one.
    offsets: dict[str, dict[str, int]] = json.loads(text.splitlines()[-1])
    return offsets
