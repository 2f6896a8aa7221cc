"""Tasks without a plan give what those of a plan give, over the same rows; where Spark has other parts, none is run."""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql.functions import expr

from pipeline.flow import straight
from pipeline.flow.crossing import CODE, FEW_ROWS, INTERPRETED, ROWS, WRITTEN, as_it_comes, map_pieces, told
from pipeline.flow.failures import failure_line
from pipeline.flow.ranges import rdd_of
from pipeline.flow.report_rows import REPORT_ARROW, REPORT_SCHEMA
from pipeline.flow.shares import shared
from pipeline.flow.source import as_rows, frame_over
from pipeline.flow.straight import Straight, values_of
from pipeline.lanes.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FIVES = {ROWS: "5", CODE: INTERPRETED}


@pytest.fixture
def batch(spark: SparkSession) -> DataFrame:
    """Return forty rows over four partitions, as a stream's batch holds them."""
    rows = spark.range(0, 40, 1, 4).selectExpr(
        "int(id / 10) as partition",
        "id as offset",
        "id * 1000 as timestamp",
        "if(id % 3 = 0, null, array(named_struct('key', 'seq', 'value', binary(string(id))))) as headers",
        "xxhash64(id) as digest",
        "if(id % 7 = 0, 'bad', null) as error",
        "array(string(id), null) as outputs",
    )
    return as_rows(rows.select(*COLUMNS))


def told_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield what a task has seen: its number, its rows, piece by piece, and by which code Java makes them."""
    context = TaskContext.get()
    assert context is not None
    pieces = [batch.to_pylist() for batch in batches]
    seen = pickle.dumps((context.partitionId(), pieces, context.getLocalProperty(CODE)))
    yield pa.record_batch([pa.array([seen], pa.binary())], schema=REPORT_ARROW)


@pytest.fixture(autouse=True)
def untold(spark: SparkSession) -> Iterator[None]:
    """Leave nothing told to the tasks of later tests: outside of a stream nobody takes it back."""
    yield
    for name in FIVES:
        spark.sparkContext.setLocalProperty(name, None)


@pytest.fixture
def by(tmp_path: Path) -> Path:
    """Return the file by which results come."""
    return tmp_path / "reports"


def described(batch: DataFrame, rdd: Any, settings: dict[str, str]) -> list[Any]:
    """Return what tasks see by way of a plan."""
    with told(batch.sparkSession, settings):
        rows = map_pieces(frame_over(rdd, batch), told_of, REPORT_SCHEMA, COLUMNS).collect()
    return [pickle.loads(row["reports"]) for row in rows]  # noqa: S301  written above


@pytest.mark.parametrize("tasks", [1, 3, 4])
@pytest.mark.parametrize("code", [WRITTEN, INTERPRETED])
def test_each_task_sees_the_rows_that_it_would_see_by_a_plan(batch: DataFrame, by: Path, tasks: int, code: str) -> None:
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), tasks)
    settings = {ROWS: "4", CODE: code}
    packed = Straight().collected(batch, rdd, told_of, settings, by)
    assert packed is not None
    found = [pickle.loads(one) for one in packed]  # noqa: S301  written above
    assert [(number, pieces) for number, pieces, _ in found] == [
        (number, pieces) for number, pieces, _ in described(batch, rdd, settings)
    ]
    assert sorted(row["offset"] for _, pieces, _ in found for piece in pieces for row in piece) == list(range(40))


def test_tasks_are_told_by_which_code_and_later_ones_nothing_of_it(
    spark: SparkSession, batch: DataFrame, by: Path
) -> None:
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 1)
    one = Straight()
    for settings, rows, codes in ((FIVES, 5, {INTERPRETED}), (as_it_comes(), 40, {WRITTEN, None})):
        [packed] = one.collected(batch, rdd, told_of, settings, by) or []
        _, pieces, code = pickle.loads(packed)  # noqa: S301  written above
        assert {len(piece) for piece in pieces} == {rows}
        assert code in codes
        assert spark.sparkContext.getLocalProperty(CODE) == WRITTEN
        assert spark.sparkContext.getLocalProperty(ROWS) == str(FEW_ROWS)


def test_a_large_function_gets_there_all_the_same(batch: DataFrame, by: Path) -> None:
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 2)
    ballast = bytes(3_000_000)  # PySpark would send more than a MiB by other ways

    def weighed(batches: Iterator[Any]) -> Iterator[Any]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch([pa.array([pickle.dumps((rows, len(ballast)))], pa.binary())], schema=REPORT_ARROW)

    packed = Straight().collected(batch, rdd, weighed, FIVES, by)
    assert packed is not None
    assert [pickle.loads(one) for one in packed] == [(20, len(ballast))] * 2  # noqa: S301  written above


def test_a_task_that_fails_fails_the_batch_with_its_own_words(batch: DataFrame, by: Path) -> None:
    def failing(_: Iterator[Any]) -> Iterator[Any]:
        msg = "these words"
        raise ValueError(msg)

    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 2)
    with pytest.raises(PythonException, match="ValueError: these words"):
        Straight().collected(batch, rdd, failing, FIVES, by)


def test_a_task_that_fails_in_java_is_told_as_if_it_were_collected(batch: DataFrame, by: Path) -> None:
    frame = batch.withColumn("timestamp", expr("raise_error(concat('in ', 'Java'))").cast("long")).select(*COLUMNS)
    with pytest.raises((Py4JJavaError, PySparkException)) as ways:
        rdd_of(frame).collect()
    with pytest.raises(type(ways.value)) as straight_on:
        Straight().collected(batch, rdd_of(frame), told_of, FIVES, by)
    assert "in Java" in failure_line(str(straight_on.value))
    assert failure_line(str(straight_on.value)) == failure_line(str(ways.value))


@pytest.mark.parametrize("error", [Py4JError("no such constructor"), TypeError("'JavaPackage' object is not callable")])
def test_where_spark_has_other_parts_it_is_asked_once_and_nothing_runs(
    batch: DataFrame, by: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked = []

    def other(*_: Any) -> None:
        asked.append(error)
        raise error

    monkeypatch.setattr(straight, "map_pieces", other)
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 2)
    one = Straight()
    assert [one.collected(batch, rdd, told_of, FIVES, by) for _ in range(2)] == [None, None]
    assert len(asked) == 1


def test_results_come_without_a_file_where_none_can_be_written(batch: DataFrame, by: Path) -> None:
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 2)
    one = Straight()
    nowhere = by.parent / "none" / "reports"
    found = [one.collected(batch, rdd, told_of, FIVES, path) or [] for path in (by, nowhere)]
    with_file, without = ([pickle.loads(row) for row in rows] for rows in found)  # noqa: S301  written above
    assert with_file == without
    assert sum(len(piece) for _, pieces, _ in without for piece in pieces) == 40
    assert by.exists()


def test_results_come_all_the_same_where_the_file_cannot_be_read(
    batch: DataFrame, by: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rdd, _ = shared(batch.sparkSession.sparkContext, rdd_of(batch), 2)
    monkeypatch.setattr(straight, "values_of", lambda data: [data])  # not as many as there are rows
    found = [pickle.loads(one) for one in Straight().collected(batch, rdd, told_of, FIVES, by) or []]  # noqa: S301
    assert sum(len(piece) for _, pieces, _ in found for piece in pieces) == 40


def row(value: bytes) -> bytes:
    """Return a row of one value as Spark lays it out."""
    return bytes(8) + (16 << 32 | len(value)).to_bytes(8, sys.byteorder) + value + bytes(-len(value) % 8)


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"", b"x" * 8, b"y" * 4_097]])
def test_rows_are_read_as_they_are_laid_out(values: list[bytes]) -> None:
    assert values_of(b"".join(map(row, values))) == values


SHIFTED = row(b"")[:8] + (24 << 32 | 8).to_bytes(8, sys.byteorder) + bytes(16)


@pytest.mark.parametrize("data", [b"\x01" + row(b"null")[1:], SHIFTED, row(b"short")[:20], row(b"shorter")[:9]])
def test_what_is_laid_out_otherwise_is_no_row(data: bytes) -> None:
    with pytest.raises(ValueError, match="no row of one value"):
        values_of(data)
