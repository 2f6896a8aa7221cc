"""YOURS, like the transform it tests: what is written for an event. It needs Spark, but no Kafka, and takes seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.spark import Written, codec_for, encoded, written

from pipeline.flow.transform import transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SCHEMAS = Path(__file__).parents[2] / "schemas"
AT = datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)
PAYMENT = {"id": "p-1", "account": "a-1", "amount": Decimal(250), "currency": "EUR", "at": AT}


@pytest.fixture
def pay(spark: SparkSession) -> Callable[..., list[Written]]:
    """Return what the transform writes for a payment with these fields changed."""
    codec = codec_for(
        SCHEMAS / "payment.avsc",
        ("receipts", "alerts"),
        input="avro",
        output="avro",
        output_schema_files=f"{SCHEMAS}/{{topic}}.avsc",
    )

    def outputs(**changed: Any) -> list[Written]:
        [found] = written(spark, codec, transform, [encoded(codec.reader.schema, {**PAYMENT, **changed})])
        return found

    return outputs


def test_a_payment_gets_a_receipt_with_its_fee_under_its_account(pay: Callable[..., list[Written]]) -> None:
    [receipt] = pay()
    assert receipt.topic == "receipts"
    assert receipt.key == "a-1"
    assert receipt.value == {"id": "p-1", "amount": 250, "currency": "EUR", "fee": Decimal("2.5"), "at": AT}


def test_a_fee_is_rounded_to_cents(pay: Callable[..., list[Written]]) -> None:
    [receipt] = pay(amount=Decimal("0.50"))
    assert receipt.value["fee"] == Decimal("0.01")


def test_a_large_payment_gets_an_alert_as_well(pay: Callable[..., list[Written]]) -> None:
    receipt, alert = pay(amount=Decimal("10000.01"))
    assert receipt.topic == "receipts"
    assert alert.topic == "alerts"
    assert alert.key == "a-1"
    assert alert.value == {"id": "p-1", "amount": Decimal("10000.01"), "currency": "EUR"}


def test_a_payment_at_the_limit_gets_no_alert(pay: Callable[..., list[Written]]) -> None:
    assert [output.topic for output in pay(amount=Decimal(10_000))] == ["receipts"]


def test_a_card_probe_is_dropped(pay: Callable[..., list[Written]]) -> None:
    assert pay(amount=Decimal(0)) == []
