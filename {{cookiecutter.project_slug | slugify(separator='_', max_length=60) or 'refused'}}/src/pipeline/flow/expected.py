"""What the user's function makes of source records, without lanes, dedup or Kafka transactions: for the audit.

Guarantee: the same codec and the same transform as the job, applied in a plain Spark batch over given offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.avro.limits import OVERSIZED, read
from pipeline.flow.codec import codec_of
from pipeline.flow.preflight import largest
from pipeline.flow.reference import Reference
from pipeline.flow.session import session
from pipeline.flow.source import batch, records
from pipeline.flow.transform import transform
from pipeline.flow.types import nullable
from pipeline.flow.usercode import apply
from pipeline.lanes.emitted import emitted
from pipeline.lanes.rows import COLUMNS, errors_of
from pipeline.lanes.sizes import too_large
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from pipeline.lanes.encoded import OutputSchema
    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

# Offsets of all partitions that are collected to the driver at once: bounds its memory.
SLICE = 100_000


def expected_outputs(
    settings: Settings,
    ranges: Mapping[int, tuple[int, int]],
    transform: Callable[[DataFrame], DataFrame] = transform,
) -> Iterator[tuple[int, int, list[Sendable] | str]]:
    """Yield partition, offset and outputs of every record in the ranges; where there can be none, the reason."""
    spark = session(settings)
    codec = codec_of(settings)
    enriched = Reference(settings, spark).bound(transform)  # with the table of now: the past of it may be gone
    schemas = codec.output_schemas()
    output = Topics(settings.output_bootstrap)
    limits = {topic: largest(output, topic) for topic in settings.output.topics}
    try:
        for part in _slices(ranges, SLICE // len(ranges)):
            rows = apply(enriched, codec.decode(records(batch(spark, settings, part))), codec)
            yield from _rows(collected(rows), schemas, limits)
    finally:
        spark.stop()


def collected(rows: DataFrame) -> Any:
    """The rows as an Arrow table, outputs included."""
    # `toArrow` refuses a null where a field of it must not be null; the cast lifts that.
    return rows.withColumn("outputs", rows["outputs"].cast(nullable(rows.schema["outputs"].dataType))).toArrow()


def _slices(ranges: Mapping[int, tuple[int, int]], width: int) -> Iterator[dict[int, tuple[int, int]]]:
    while any(first < until for first, until in ranges.values()):
        yield {partition: (first, min(first + width, until)) for partition, (first, until) in ranges.items()}
        ranges = {partition: (min(first + width, until), until) for partition, (first, until) in ranges.items()}


def _rows(
    table: Any, schemas: Mapping[str, OutputSchema], limits: Mapping[str, int]
) -> Iterator[tuple[int, int, list[Sendable] | str]]:
    for part in table.to_batches():
        partitions, offsets = (part.column(COLUMNS.index(name)).to_pylist() for name in ("partition", "offset"))
        errors = errors_of(part.column(COLUMNS.index("error")))
        made, wrong = emitted(part.column(COLUMNS.index("outputs")), schemas)
        for row, (partition, offset, outputs) in enumerate(zip(partitions, offsets, made.by_row(), strict=True)):
            unfit = errors.get(row) or wrong.get(row)
            if unfit is not None:
                yield partition, offset, read(unfit)[0]
            else:
                yield partition, offset, outputs if too_large(outputs, limits) is None else OVERSIZED
