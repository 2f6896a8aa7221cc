"""Yours: what windows.py makes of events, without Kafka; and that spans are the windows that Spark itself makes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from pipeline.errors import SafeStop
from pipeline.flow.outputs import encoded_as
from pipeline.flow.spans import session, sliding, span, spans, tumbling
from pipeline.flow.windows import windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
