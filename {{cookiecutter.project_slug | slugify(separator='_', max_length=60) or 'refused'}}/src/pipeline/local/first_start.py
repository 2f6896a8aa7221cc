"""`python -m pipeline.local.first_start OPTIONS`: a Spark that does a little of everything, for `classes.py`.

It streams some rows through a Python worker, as a job does, but without Kafka; what it loads meanwhile is archived.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.functions import array, col, lit, struct, xxhash64

from pipeline.flow.session import session, stop_spark
from pipeline.flow.source import options
from pipeline.settings import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SETTINGS = """
[app]
id = "first-start"
[source]
bootstrap = "127.0.0.1:9"
topic = "source"
[output]
topics = ["output"]
dead_letter_topic = "dead-letters"
[codec]
input = "bytes"
"""


def on_batch(batch: DataFrame, _: int) -> None:
    """Rows of the kinds that a lane's have."""
    record = struct(lit("topic").alias("topic"), col("value").cast("string").cast("binary").alias("key"))
    made = batch.select("value", xxhash64("value").alias("digest"), array(record).alias("outputs"))
    made.mapInArrow(lambda batches: batches, made.schema).collect()


def main(java_options: str) -> None:
    """Start, stream, end."""
    with tempfile.TemporaryDirectory(prefix="pipeline-") as folder:
        path = Path(folder, "pipeline.toml")
        path.write_text(SETTINGS, encoding="utf-8")
        settings = load(path, {})
        spark = session(settings, java_options)
        spark.readStream.format("kafka").options(**options(settings), assign='{"source": [0]}').load()
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        query = rows.writeStream.foreachBatch(on_batch).option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(once=True).start().awaitTermination()
        stop_spark(spark)


if __name__ == "__main__":
    main(sys.argv[1])
