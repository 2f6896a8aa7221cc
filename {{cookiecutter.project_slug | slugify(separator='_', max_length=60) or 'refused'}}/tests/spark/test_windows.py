"""Yours: what windows.py makes of events, without Kafka; and that spans are the windows that Spark itself makes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from tests.support.spark import codec_for

from pipeline.errors import SafeStop
from pipeline.flow.corrections import correcting, is_correction
from pipeline.flow.outputs import emit, encoded_as, output, record
from pipeline.flow.sessions import check_sessions
from pipeline.flow.spans import session, sliding, span, spans, tumbling
from pipeline.flow.usercode import results, windows_checked
from pipeline.flow.windows import windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS = Path(__file__).parents[2] / "schemas"
SCHEMA = "id string, account string, amount decimal(12,2), currency string, at timestamp"


def events(spark: SparkSession, rows: list[tuple[str, int, str]]) -> DataFrame:
    """Return payments of (account, seconds since 1970, amount)."""
    made = [
        (str(number), account, Decimal(amount), "EUR", datetime.fromtimestamp(at, UTC))
        for number, (account, at, amount) in enumerate(rows)
    ]
    return spark.createDataFrame(made, SCHEMA)


def written(found: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the values by topic."""
    outputs: dict[str, list[dict[str, Any]]] = {"totals": [], "verdicts": []}
    for row in found.collect():
        for one in row["outputs"]:
            if one is not None:
                outputs[one["topic"]].append(json.loads(one["value"]))
    return outputs


def test_a_payment_gets_one_verdict_from_three_analysers_and_its_account_a_total_of_each_window(
    spark: SparkSession,
) -> None:
    calm, busy = [("calm", 0, "10.00")], [("busy", 60 * number, "2500.50") for number in range(5)]
    with encoded_as("json"):
        found = written(windows(events(spark, [*calm, *busy, ("large", 400, "9999.99")])))
    verdicts = {(one["account"], one["verdict"], one["score"]) for one in found["verdicts"]}
    assert verdicts == {("calm", "accept", 0), ("busy", "refuse", 70), ("large", "review", 40)}
    assert len(found["verdicts"]) == 7
    totals = {(one["kind"], one["account"], one["start"][11:19]): one for one in found["totals"]}
    assert totals["tumbling", "busy", "00:00:00"]["payments"] == 5
    assert totals["tumbling", "busy", "00:00:00"]["amount"] == 12502.50
    assert sum(kind == "sliding" and account == "calm" for kind, account, _ in totals) == 6
    assert totals["session", "busy", "00:00:00"]["end"][11:19] == "00:09:00"


def test_a_late_payment_adds_to_the_totals_and_is_left_to_a_person(spark: SparkSession) -> None:
    # The fifth of five: alone it would be accepted, though the five of them are refused.
    late = events(spark, [("busy", 240, "2500.50"), ("busy", 250, "9999.99")])
    with encoded_as("json"), correcting(now=True):
        found = written(windows(late))
    scores = [(one["verdict"], one["large"], one["often"], one["much"], one["score"]) for one in found["verdicts"]]
    assert sorted(scores) == [("review", 0, 0, 0, 0), ("review", 40, 0, 0, 40)]
    tumbling_ones = [one for one in found["totals"] if one["kind"] == "tumbling"]
    assert [(one["payments"], one["amount"]) for one in tumbling_ones] == [(2, 12500.49)]


def test_a_job_tells_the_function_whether_it_corrects(spark: SparkSession) -> None:
    told = []

    def function(given: DataFrame) -> DataFrame:
        told.append(is_correction())
        return windows(given)

    codec = codec_for(SCHEMAS / "payment.avsc")
    late = events(spark, [("a", 0, "1.00")])
    rate = spark.readStream.format("rate").load().select(f.col("timestamp").alias("at"))
    columns = [f.lit(None).cast(kind).alias(name) for name, kind in (("id", "string"), ("account", "string"))]
    stream = rate.select("at", *columns, f.lit(1).cast("decimal(12,2)").alias("amount")).withWatermark("at", "1 minute")
    results(function, stream, codec)
    results(function, late, codec)
    results(function, late, codec, corrects=False)
    assert told == [False, True, False]
    assert not is_correction()


def totals(spark: SparkSession) -> DataFrame:
    """Return what is counted of one session of two payments, with the start and end of it as columns."""
    payments = events(spark, [("a", 0, "1.00"), ("a", 60, "1.00")])
    counted = spans(payments, "at", session("session", 100)).groupBy("account", *span()).agg(f.count("*").alias("n"))
    return counted.select("*", "span.*")


def test_a_condition_on_the_start_or_end_of_a_session_would_cut_it_short_and_is_refused(spark: SparkSession) -> None:
    begins_late = f.unix_seconds("start") >= 60
    cut = totals(spark).where(begins_late)
    assert [row["n"] for row in cut.collect()] == [1], "Spark no longer moves the condition below the merge"
    by_length = (
        totals(spark).withColumn("length", f.unix_seconds("end") - f.unix_seconds("start")).where("length > 100")
    )
    both = totals(spark).where(begins_late & (f.col("n") > 1))
    exploded = totals(spark).withColumn("copy", f.explode(f.array(f.lit(1), f.lit(2)))).where(begins_late)
    joined = totals(spark).join(spark.range(2), begins_late)
    native = events(spark, [("a", 0, "1.00")]).groupBy(f.session_window("at", "100 seconds").alias("own")).count()
    for frame in (cut, by_length, both, exploded, joined, native.where(f.unix_seconds("own.end") > 10)):
        with pytest.raises(SafeStop, match=r"on the start or end of a window.*put it on the output with \.when"):
            check_sessions(frame)


def test_conditions_that_leave_sessions_whole_are_allowed(spark: SparkSession) -> None:
    early = events(spark, [("a", 0, "1.00")]).where("amount > 0")
    fixed = early.groupBy(f.window("at", "60 seconds").alias("own")).count().where(f.unix_seconds("own.end") > 10)
    over_counts = totals(spark).where((f.unix_seconds("start") >= 60) | (f.col("n") > 1))
    assert [row["n"] for row in over_counts.collect()] == [2]
    for frame in (
        totals(spark),
        totals(spark).where("n > 1 and account = 'a' and kind = 'session'"),
        fixed,
        over_counts,
    ):
        check_sessions(frame)
    with encoded_as("json"):
        check_sessions(windows(early))


def test_windows_with_such_a_condition_are_refused_before_a_record_is_read(spark: SparkSession) -> None:
    def filtered(given: DataFrame) -> DataFrame:
        found = spans(given, "at", session("session", 100)).groupBy("account", *span()).count().select("*", "span.*")
        outputs = emit(output("totals", key="account", value=record("account", "count")))
        ended = found.where(f.col("end") < f.lit("2026-01-01").cast("timestamp"))
        return ended.select(outputs.alias("outputs"), f.col("end").alias("time"))

    with pytest.raises(SafeStop, match="on the start or end of a window"):
        windows_checked(spark, filtered, codec_for(SCHEMAS / "payment.avsc"))
    windows_checked(spark, windows, codec_for(SCHEMAS / "payment.avsc"))


def test_spans_are_the_windows_that_spark_makes(spark: SparkSession) -> None:
    chance = random.Random(7)  # noqa: S311  data, not a secret
    rows = [(chance.choice("ab"), chance.randrange(-5_000, 20_000), "1.00") for _ in range(400)]
    payments = events(spark, rows).withColumn("at", f.col("at") + f.expr("interval 250 microseconds")).persist()
    kinds = (tumbling("tumbling", 60), sliding("sliding", 300, 60), session("session", 90))
    ours = spans(payments, "at", *kinds).groupBy("account", *span()).count()
    got = {tuple(row) for row in ours.select("kind", "account", "span.start", "span.end", "count").collect()}
    natives = {
        "tumbling": f.window("at", "60 seconds"),
        "sliding": f.window("at", "300 seconds", "60 seconds"),
        "session": f.session_window("at", "90 seconds"),
    }
    wanted = set()
    for kind, window in natives.items():
        theirs = payments.groupBy("account", window.alias("span")).count()
        wanted |= {(kind, *row) for row in theirs.select("account", "span.start", "span.end", "count").collect()}
    assert len(wanted) > 400
    assert got == wanted


def test_a_length_that_is_no_multiple_of_its_step_is_refused() -> None:
    with pytest.raises(SafeStop, match="multiple of the step"):
        sliding("odd", 100, 30)
