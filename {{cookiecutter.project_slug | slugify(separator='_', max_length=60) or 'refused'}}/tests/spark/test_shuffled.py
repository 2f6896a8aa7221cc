"""How results find their lanes: by their key alone, whatever Spark does with partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from pipeline.flow.lateness import PROPERTY, at_or_before_watermark, watermark
from pipeline.flow.outputs import HEADERS_TYPE, emit, encoded_as, output, record
from pipeline.flow.part import PART_COLUMNS, gathered
from pipeline.flow.source import records
from pipeline.flow.spread import records_of, results_of, salts, to_lanes
from pipeline.flow.usercode import apply
from pipeline.flow.window_dedup import first_copies, identified
from pipeline.lanes.token import Planned
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LANES = 5
PLAN = Planned("query", 0, (0,) * LANES, (1,) * LANES, 0, 0)


def results(spark: SparkSession, partitions: int) -> DataFrame:
    """Return a hundred results of ten keys, spread over partitions in one way or another."""
    rows = spark.range(100, numPartitions=partitions).repartition(partitions)
    made = rows.withColumn(
        "outputs", emit(output("out", key=(f.col("id") % 10).cast("string"), value=f.col("id").cast("string")))
    )
    return made.select("outputs", f.col("id").alias("time"))


def in_tasks(frame: DataFrame) -> list[tuple[int, int, bytes | None, int | None]]:
    """Return (task, lane, key, value) of every row, as the tasks see them."""
    rows = frame.withColumn("task", f.spark_partition_id()).collect()
    held = [(row["outputs"] or [{"key": None, "value": None}])[0] for row in rows]
    return [
        (row["task"], row["lane"], one["key"] and bytes(one["key"]), one["value"] and int(one["value"]))
        for row, one in zip(rows, held, strict=True)
    ]


def test_a_key_has_the_same_lane_however_spark_spreads_the_rows(spark: SparkSession) -> None:
    placed = []
    for partitions in (1, 2, 7):
        rows = in_tasks(to_lanes(results_of(results(spark, partitions), PLAN), LANES))
        placed.append({(key, value, lane) for _, lane, key, value in rows if key is not None})
    assert len(placed[0]) == 100
    assert placed[0] == placed[1] == placed[2]
    lanes_of = {key: {lane for other, _, lane in placed[0] if other == key} for key, _, _ in placed[0]}
    assert all(len(lanes) == 1 for lanes in lanes_of.values())


def test_every_lane_has_a_task_of_its_own_also_without_results_and_its_rows_are_in_order(spark: SparkSession) -> None:
    nothing = in_tasks(to_lanes(results_of(results(spark, 2).where("time < 0"), PLAN), LANES))
    assert sorted(lane for _, lane, _, _ in nothing) == list(range(LANES))
    rows = in_tasks(to_lanes(results_of(results(spark, 3), PLAN), LANES))
    assert len({(task, lane) for task, lane, _, _ in rows}) == len({task for task, _, _, _ in rows}) == LANES
    for key in {key for _, _, key, _ in rows if key}:
        values = [value for _, _, other, value in rows if other == key and value is not None]
        assert values == sorted(values)
    assert len(set(salts(LANES))) == LANES


def deduplicated(spark: SparkSession, partitions: int) -> dict[tuple[str, int, int], tuple[int, list[bytes]]]:
    """Return what becomes of forty ids with two copies each, in two source partitions and under two keys.

    Ids below 30 are new, and one record has none; by (kind, partition, offset) the lane and the keys of its outputs.
    """
    number = f.col("id")
    raw = spark.range(81).select(
        number.cast("string").cast("binary").alias("key"),
        f.lit(b"").alias("value"),
        (number % 2).cast("int").alias("partition"),
        (number / 2).cast("long").alias("offset"),
        f.timestamp_millis(f.lit(0)).alias("timestamp"),
        f.lit(None).cast(HEADERS_TYPE).alias("headers"),
    )
    name = f.when(f.col("_source.offset") < 40, f.col("_source.offset"))
    sound = f.col("_source").withField("error", f.lit(None).cast("string"))
    found = records(raw).withColumn("name", name).withColumn("_source", sound).repartition(partitions)
    dedup = Dedup(strategy="window", id_column="name")
    new = spark.range(30).select(number.alias("name")).repartition(partitions)
    events = first_copies(identified(found, dedup), new, dedup)
    outputs = emit(output("out", key="_key", value="value"), output("out", key=f.lit("other"), value="value"))
    rows = to_lanes(records_of(apply(lambda given: given.withColumn("outputs", outputs), events)), 2).collect()
    return {
        (row["kind"], row["partition"], row["offset"]): (
            row["lane"],
            [bytes(one["key"]) for one in row["outputs"] or []],
        )
        for row in rows
        if row["kind"] != "lane"
    }


def test_the_first_copy_of_an_id_by_its_place_is_kept_however_spark_spreads_the_rows(spark: SparkSession) -> None:
    """A shuffle hands copies over in any order; a replay that took another one would give it to another lane."""
    found = deduplicated(spark, 1)
    assert found == deduplicated(spark, 3) == deduplicated(spark, 7)
    kept = {(partition, offset): of for (kind, partition, offset), of in found.items() if kind == "kept"}
    assert kept == {(0, number): (0, [b"%d" % (2 * number), b"other"]) for number in range(30)}
    assert [(at, lane) for (kind, *at), (lane, _) in found.items() if kind == "dead"] == [([0, 40], 0)]
    read = {(partition, offset): lane for (kind, partition, offset), (lane, _) in found.items() if kind == "read"}
    assert read == {(number % 2, number // 2): number % 2 for number in range(81)}


def test_results_that_hold_maps_find_their_lanes_as_well(spark: SparkSession) -> None:
    with encoded_as("avro"):
        made = spark.range(10).withColumn("named", f.create_map(f.lit("id"), "id"))
        outputs = emit(output("out", key=f.lit("k"), value=record("named")))
        rows = to_lanes(
            results_of(made.select(outputs.alias("outputs"), f.lit(1).alias("time")), PLAN), LANES
        ).collect()
    held = [one["records"][0]["named"]["id"] for row in rows for one in row["outputs"] or []]
    assert held == list(range(10))
    assert len(rows) == 10 + LANES


def test_rows_of_two_lanes_in_one_task_stop_the_job() -> None:
    kind = pa.list_(
        pa.struct(
            [
                ("topic", pa.string()),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        )
    )
    kinds = [pa.int32(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string(), kind]
    columns = [[0, 1], ["lane", "lane"], *([[None, None]] * 5)]
    arrays = [pa.array(values, of) for values, of in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(PART_COLUMNS))
    task: Any = type(
        "Task",
        (),
        {"schemas": {}, "topic_bytes": {}, "settings": type("Of", (), {"windows": type("W", (), {"late": "drop"})})},
    )
    with pytest.raises(Exception, match=r"rows of lanes \[0, 1\] instead of one"):
        gathered(iter([batch]), task)


def test_an_event_at_the_watermark_is_late_and_one_behind_it_is_not(spark: SparkSession) -> None:
    times = spark.range(9, 12)
    with watermark(spark.sparkContext, 10):
        judged = times.select("id", at_or_before_watermark(f.col("id")).alias("late")).collect()
    assert {row["id"]: row["late"] for row in judged} == {9: True, 10: True, 11: False}
    assert not spark.sparkContext.getLocalProperty(PROPERTY)
    with pytest.raises(Exception, match="no watermark was handed to the task"):
        times.select(at_or_before_watermark(f.col("id"))).collect()
