"""What a job learns of its rows as they cross, and that Spark reads the same of them whichever way it makes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.support.job import App, new_app, payment
from tests.support.lanes import fill, provisioned

from pipeline.flow.crossing import CODE, INTERPRETED, WRITTEN, as_it_comes, told
from pipeline.flow.source import batch

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.lanes.transaction import Headers
    from pipeline.local.broker import Broker


@pytest.fixture
def job(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app."""
    return new_app(broker.bootstrap, tmp_path)


def test_a_job_knows_nothing_of_its_rows_at_first_and_then_what_they_took(
    job: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[int] = []

    def noted(_: object, row_bytes: int) -> dict[str, str]:
        known.append(row_bytes)
        return as_it_comes()

    monkeypatch.setattr("pipeline.flow.batch.told_for", noted)
    job.pay(0, range(500))
    job.with_settings(source={"max_offsets_per_trigger": 200}).run()
    first, *later = known
    assert first == 0
    assert len(later) >= 2
    assert all(len(payment(b"0")) < row_bytes < 10_000 for row_bytes in later)
    job.assert_exact()


def refused(*_: object) -> None:
    """Stand for a part that this Spark does not have."""
    msg = "no such constructor"
    raise Py4JError(msg)


def test_the_batches_of_a_stream_go_without_a_plan(job: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.flow.batch.map_pieces", refused)
    job.pay(0, range(500))
    job.with_settings(source={"max_offsets_per_trigger": 200}).run()
    job.assert_exact()


def test_where_spark_has_other_parts_batches_are_described(job: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.flow.straight.map_pieces", refused)
    job.pay(0, range(500))
    job.with_settings(source={"max_offsets_per_trigger": 200}).run()
    job.assert_exact()


def test_rows_are_the_same_by_code_that_is_written_and_without(broker: Broker, job: App) -> None:
    job.run()  # nothing, but Spark runs then
    spark = SparkSession.getActiveSession()
    assert spark is not None
    app = provisioned(broker.bootstrap)
    headers: Headers = [("producer-id", b"p"), ("none", None), ("empty", b""), ("again", b"1"), ("again", b"2")]
    records: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"k", b"v", headers),
        (None, b"", []),
        (b"", None, [("a", b"\x00\xff")]),
        (b"k" * 999, b"v" * 99_999, []),
    ]
    fill(broker.bootstrap, app.source.name, records)
    rows = {}
    for code in (WRITTEN, INTERPRETED):
        with told(spark, {CODE: code}):
            rows[code] = batch(spark, app.settings, {0: (0, len(records))}).collect()
    assert len(rows[WRITTEN]) == len(records)
    assert rows[INTERPRETED] == rows[WRITTEN]
