"""A task that fails in Java while its worker reads: the worker must not take that for the end of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql.functions import udf
from tests.support.kafka import wait_until

from pipeline.flow.spared import spare_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 20_000
BAD = 15_000


def noting(folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a task that notes how far its rows went, and whether they came to an end."""

    def note(batches: Iterator[Any]) -> Iterator[Any]:
        spare_tasks()
        rows = 0
        try:
            for batch in batches:
                rows += batch.num_rows
        except EOFError:
            (folder / "broken off").write_text(str(rows))
            raise
        (folder / "ended").write_text(str(rows))
        yield pa.record_batch([pa.array([rows])], names=["rows"])

    return note


def test_rows_that_break_off_because_a_function_failed_on_a_later_one_are_no_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fails_late(number: int) -> int:
        if number == BAD:
            msg = "a bad row"
            raise ValueError(msg)
        return number

    rows = spark.range(0, ROWS, 1, 1).select(udf(fails_late, "long")("id").alias("id"))
    with pytest.raises(PythonException, match="a bad row"):
        rows.mapInArrow(noting(tmp_path), "rows long").collect()
    wait_until((tmp_path / "broken off").exists, 20.0, "the worker has noticed")
    assert 0 < int((tmp_path / "broken off").read_text()) < BAD
    assert not (tmp_path / "ended").exists()


def test_rows_that_are_whole_come_to_their_end(spark: SparkSession, tmp_path: Path) -> None:
    [row] = spark.range(0, ROWS, 1, 1).mapInArrow(noting(tmp_path), "rows long").collect()
    assert row["rows"] == ROWS
