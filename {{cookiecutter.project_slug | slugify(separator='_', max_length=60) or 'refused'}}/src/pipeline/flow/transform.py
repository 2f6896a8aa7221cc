"""YOURS: what becomes of each event.

One row in, one row out. Add columns as you like; put what is to be written into the column `outputs`:
no output drops the event on purpose, several write to one or more topics, all in the same transaction.
`tests/spark/test_transform.py` runs this in seconds without Kafka.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql.functions import col
from pyspark.sql.functions import round as rounded

from pipeline.flow.outputs import emit, output, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEE_RATE = Decimal("0.01")
ALERT_ABOVE = 10_000


def transform(events: DataFrame) -> DataFrame:
    """A receipt for every payment, an alert as well for a large one, nothing for a card probe of amount 0."""
    priced = events.withColumn("fee", rounded(col("amount") * FEE_RATE, 2).cast("decimal(12,2)"))
    receipt = output("receipts", key="account", value=record("id", "amount", "currency", "fee", "at"))
    alert = output("alerts", key="account", value=record("id", "amount", "currency"))
    return priced.withColumn(
        "outputs",
        emit(receipt.when(col("amount") != 0), alert.when(col("amount") > ALERT_ABOVE)),
    )
