"""A range as Java writes it, taken by one call, is the range that Java holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.flow.ranges import Range, items, range_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("in", "in-1", "a.b_c-2-3", "KafkaOffsetRange", "9")
PLACES = (None, "executor_host-7_1", "executor_a,b(c)_2")


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    """Return Java."""
    return spark.sparkContext._jvm  # noqa: SLF001  ranges have no Python face


class AskedFor:
    """A range of Java that notes what it is asked."""

    def __init__(self, held: Any) -> None:
        """Nothing yet."""
        self._held = held
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Answer as the range does."""
        self.asked.append(name)
        return getattr(self._held, name)


def held(jvm: Any, topic: str, given: Range, place: str | None = None) -> AskedFor:
    """Return a range as Spark's source makes it."""
    partition = jvm.org.apache.kafka.common.TopicPartition(topic, given.partition)
    made = jvm.org.apache.spark.sql.kafka010.KafkaOffsetRange
    return AskedFor(made(partition, given.first, given.until, jvm.scala.Option.apply(place)))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("given", [Range(0, 0, 0), Range(17, 2**40, 2**63 - 1)])
def test_the_written_form_says_what_the_range_itself_does_by_one_call(
    jvm: Any, topic: str, place: str | None, given: Range
) -> None:
    found = held(jvm, topic, given, place)
    assert range_of(found) == given
    assert found.asked == ["toString"]


def test_a_form_that_is_not_known_is_asked_for_field_by_field(jvm: Any) -> None:
    found = held(jvm, "in", Range(3, -2, -1))
    assert range_of(found) == Range(3, -2, -1)
    assert found.asked == ["toString", "topicPartition", "fromOffset", "untilOffset"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_items_of_an_array_of_java_come_in_their_order(spark: SparkSession, jvm: Any, count: int) -> None:
    held = jvm.java.util.ArrayList()
    for place in range(count):
        held.add(f"item {place}")
    assert items(spark, held.toArray()) == [f"item {place}" for place in range(count)]
