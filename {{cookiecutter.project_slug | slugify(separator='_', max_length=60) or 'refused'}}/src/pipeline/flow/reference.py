"""Enrichment: events joined with a table that is kept from a compacted topic.

    from pipeline.flow.reference import enrich

    def transform(events):
        known = enrich(events, on="account")  # one more column, `reference`: null where the key is not in the table
        ...

Guarantee: all records of one micro-batch are enriched with the same state of the table, in all lanes, also when a
crash cut the batch in two: the position of the table is committed as a plan before the batch's first output, and the
rest of the batch is done with the table at that position, or the job stops. Between batches the table is refreshed.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.functions import broadcast, col, from_json

from pipeline.errors import SafeStop
from pipeline.flow.table import Table
from pipeline.flow.types import columns_of, load_schema, nullable, reader_of
from pipeline.lanes.plans import Plan, Plans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.flow.ranges import Range
    from pipeline.settings import Settings

    Transform = Callable[[DataFrame], DataFrame]

REFERENCE = "reference"
REFERENCE_KEY = "_reference_key"

_TABLE: ContextVar[DataFrame | None] = ContextVar("table", default=None)


def enrich(events: DataFrame, on: str) -> DataFrame:
    """Add the column `reference`: what the table holds under the value of the column `on`, or null."""
    table = _TABLE.get()
    if table is None:
        msg = "transform: enrich(...) needs a table: set reference.topic and reference.schema_file"
        raise SafeStop(msg)
    joined = events.join(broadcast(table), events[on].cast("string") == table[REFERENCE_KEY], "left")
    return joined.drop(REFERENCE_KEY)


def bound(transform: Transform, table: Callable[[], DataFrame]) -> Transform:
    """The user's function with a table for its `enrich`, which is asked for at each call."""

    def with_table(events: DataFrame) -> DataFrame:
        token = _TABLE.set(table())
        try:
            return transform(events)
        finally:
            _TABLE.reset(token)

    return with_table


def frame_of(spark: SparkSession, settings: Settings, items: Mapping[bytes, bytes]) -> DataFrame:
    """The table as Spark sees it; values are JSON of the columns that the schema names."""
    where = f"reference.schema_file = {settings.reference.schema_file!r}"
    columns = nullable(columns_of(reader_of(load_schema(Path(settings.reference.schema_file), where), where).node))
    rows = [(_text(key), _text(value)) for key, value in items.items()]
    table = spark.createDataFrame(rows, f"{REFERENCE_KEY} string, value string")
    return table.select(REFERENCE_KEY, from_json(col("value"), columns).alias(REFERENCE))


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


class Reference:
    """The table of one run; without `reference.topic` it does nothing at all."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        """Read the table as it is now."""
        self._settings = settings
        self._spark = spark
        self._table = Table(settings) if settings.reference.topic else None
        self._plans = Plans(settings)
        self._kept: tuple[int, DataFrame] | None = None
        if self._table is not None:
            self._table.refresh()

    def bound(self, transform: Transform) -> Transform:
        """The user's function, with the table as it is whenever it is called."""
        return bound(transform, self._frame) if self._table is not None else transform

    def before_batch(self, ranges: Iterable[Range]) -> None:
        """Refresh the table, and commit by what the batch will be enriched."""
        if self._table is None:
            return
        self._table.refresh()
        planned = list(ranges)
        self._plans.write(
            Plan(
                first={one.partition: one.first for one in planned},
                until={one.partition: one.until for one in planned},
                reference=dict(self._table.position),
                digest=self._table.digest,
            )
        )

    def take_over(self, run: int, next_offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """The ranges of a batch that an earlier run left unfinished; the table is then as it was for that batch."""
        if self._table is None:
            return {}
        plan = self._plans.take_over(run)
        left = plan.unfinished(next_offsets)
        # At least once, output is visible before the lane says so: there it may have been, whatever the lanes say.
        seen = plan.is_begun(next_offsets) or self._settings.delivery.semantics == "at-least-once"
        if not left or not seen:
            return {}  # nothing that is visible was made with that table
        self._table.rebuild(plan.reference)
        if self._table.digest != plan.digest:
            msg = (
                f"reference topic {self._settings.reference.topic} was compacted since a batch was cut off, so the "
                f"rest of it (ranges {left}) cannot be enriched as its first part was; raise the topic's "
                f"min.compaction.lag.ms, and to go on all the same, give the job another app.id, started at its offsets"
            )
            raise SafeStop(msg)
        return left

    def _frame(self) -> DataFrame:
        assert self._table is not None  # noqa: S101  only bound where there is one
        if self._kept is None or self._kept[0] != self._table.version:
            self._kept = (self._table.version, frame_of(self._spark, self._settings, self._table.items))
        return self._kept[1]
