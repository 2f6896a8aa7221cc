"""Windows of several kinds over one read of the events: tumbling, sliding and session in a single stateful operator.

Spark would read the topic once for each `groupBy` of a query, and plan the ends of these reads one after the other: an
event could be on time for one window, and late for the next. So each event is laid out as one row for each window it
falls into, and all of them are grouped at once. A window of fixed length is a session of that length which begins where
the window does; `slot` keeps neighbours apart.

Guarantee: the same windows as Spark's `window` and `session_window` make, in streams and in plain batches alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    array,
    col,
    concat,
    explode,
    lit,
    pmod,
    session_window,
    struct,
    timestamp_micros,
    unix_micros,
)

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MICROSECONDS = 1_000_000
TIME, GAP = "_span_time", "_span_gap"


@dataclass(frozen=True)
class Kind:
    """One kind of windows; without a step, sessions that end after so many seconds of silence."""

    name: str
    seconds: int
    step: int | None

    def rows(self, micros: Column) -> list[Column]:
        """The windows that an event falls into: (kind, slot, time, gap) of each."""
        gap = lit(f"{self.seconds} seconds")
        if self.step is None:
            return [_row(self.name, lit(0), micros, gap)]
        newest = micros - pmod(micros, lit(self.step * MICROSECONDS))
        starts = [newest - back * self.step * MICROSECONDS for back in range(self.seconds // self.step)]
        return [_row(self.name, start, start, gap) for start in starts]


def tumbling(name: str, seconds: int) -> Kind:
    """Windows of equal length, side by side."""
    return sliding(name, seconds, seconds)


def sliding(name: str, seconds: int, step: int) -> Kind:
    """Windows of equal length, one of which begins with each step."""
    if seconds < 1 or step < 1 or seconds % step:
        msg = f"windows: {name}: {seconds} s in steps of {step} s; the length must be a multiple of the step"
        raise SafeStop(msg)
    return Kind(name, seconds, step)


def session(name: str, gap_seconds: int) -> Kind:
    """Windows that end once a key was silent for so long."""
    return Kind(name, gap_seconds, None)


def spans(events: DataFrame, time: str, *kinds: Kind) -> DataFrame:
    """Each event once for each window it falls into; to be grouped by your keys and `*span()`."""
    micros = unix_micros(time)
    laid_out = explode(concat(*(array(*kind.rows(micros)) for kind in kinds)))
    rows = events.withColumn("_span", laid_out)
    # What Spark needs to know of a column by which windows are closed: that it has a watermark.
    marked = col("_span.time").alias(TIME, metadata=events.schema[time].metadata)
    return rows.select(*events.columns, "_span.kind", "_span.slot", marked, col("_span.gap").alias(GAP))


def span() -> tuple[str, str, Column]:
    """Group by these: the kind, the slot, and the window itself as `span`, with its start and end."""
    return "kind", "slot", session_window(col(TIME), col(GAP)).alias("span")


def _row(name: str, slot: Column, micros: Column, gap: Column) -> Column:
    return struct(
        lit(name).alias("kind"),
        slot.cast("long").alias("slot"),
        timestamp_micros(micros).alias("time"),
        gap.alias("gap"),
    )
