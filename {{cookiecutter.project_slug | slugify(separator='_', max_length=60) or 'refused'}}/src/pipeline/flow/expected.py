"""What the user's function makes of source records, without lanes, dedup or Kafka transactions: for the audit.

Guarantee: the same codec and the same transform as the job, applied in a plain Spark batch over given offsets.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.flow.codec import decode, read_schema
from pipeline.flow.outputs import OUTPUTS_TYPE
from pipeline.flow.session import session
from pipeline.flow.source import batch, records
from pipeline.flow.transform import transform
from pipeline.flow.usercode import apply
from pipeline.lanes.rows import COLUMNS, outputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

# Offsets of all partitions that are collected to the driver at once: bounds its memory.
SLICE = 100_000


def expected_outputs(
    settings: Settings,
    ranges: Mapping[int, tuple[int, int]],
    transform: Callable[[DataFrame], DataFrame] = transform,
) -> Iterator[tuple[int, int, list[Sendable] | None]]:
    """Yield partition, offset and outputs of every record in the ranges; None where its value cannot be decoded."""
    spark = session(settings)
    schema = read_schema(Path(settings.codec.schema_file))
    try:
        for part in _slices(ranges, SLICE // len(ranges)):
            events = decode(records(batch(spark, settings, part)), schema)
            rows = apply(transform, events)
            # `toArrow` refuses a null where a field of it must not be null; the cast lifts that.
            yield from _rows(rows.withColumn("outputs", rows["outputs"].cast(OUTPUTS_TYPE)).toArrow())
    finally:
        spark.stop()


def _slices(ranges: Mapping[int, tuple[int, int]], width: int) -> Iterator[dict[int, tuple[int, int]]]:
    while any(first < until for first, until in ranges.values()):
        yield {partition: (first, min(first + width, until)) for partition, (first, until) in ranges.items()}
        ranges = {partition: (min(first + width, until), until) for partition, (first, until) in ranges.items()}


def _rows(table: Any) -> Iterator[tuple[int, int, list[Sendable] | None]]:
    for part in table.to_batches():
        partitions, offsets, errors = (
            part.column(COLUMNS.index(name)).to_pylist() for name in ("partition", "offset", "error")
        )
        for partition, offset, error, outputs in zip(
            partitions, offsets, errors, outputs_of(part.column(COLUMNS.index("outputs"))), strict=True
        ):
            yield partition, offset, None if error is not None else outputs
