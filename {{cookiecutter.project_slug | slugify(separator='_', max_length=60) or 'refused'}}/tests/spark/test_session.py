"""Java as a job starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_loggers_are_found_without_a_walk_through_the_stack(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001  Java has no other face
    assert jvm is not None
    assert not jvm.org.apache.logging.log4j.LogManager.getFactory().isClassLoaderDependent()
