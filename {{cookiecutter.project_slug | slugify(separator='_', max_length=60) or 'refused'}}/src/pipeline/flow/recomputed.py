"""What the shuffled path must have written, computed anew from the source in one plain Spark batch: for the audit.

Guarantee: the user's own function over the log, without lanes, tokens, state or watermarks. Of the job it takes the
word on two things only: up to where it has read, and which events came late; the audit looks at these claims itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as f

from pipeline.flow.codec import codec_of
from pipeline.flow.expected import collected
from pipeline.flow.lateness import ERROR, sound
from pipeline.flow.session import session
from pipeline.flow.shuffled import CORRECTION
from pipeline.flow.source import KEY, SOURCE, batch, records
from pipeline.flow.transform import transform
from pipeline.flow.usercode import apply, results, windows_checked
from pipeline.flow.window_dedup import identified
from pipeline.flow.windows import windows
from pipeline.lanes.emitted import emitted
from pipeline.lanes.shuffled import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.flow.codec import Codec
    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

LATE_SCHEMA = "batch long, late_partition int, late_offset long"


@dataclass
class Claimed:
    """What the job says of itself, and the recomputation goes by."""

    ranges: Mapping[int, tuple[int, int]]
    watermark_ms: int
    late: Sequence[tuple[int, int, int]] = ()  # batch, source partition, offset


@dataclass
class Recomputed:
    """What must be there."""

    read: int = 0
    times: list[int] = field(default_factory=list)  # of sound events, rising, in ms
    late: dict[tuple[int, int], int] = field(default_factory=dict)  # event time of each late event, by its place
    outputs: Counter[Sendable] = field(default_factory=Counter)
    dead: Counter[tuple[str, int, int]] = field(default_factory=Counter)  # reason, source partition, offset
    by_id: dict[Any, list[tuple[Sendable, ...]]] = field(default_factory=dict)  # for `window` dedup, of each copy
    # What orders the results of a key, and its group: the time, or behind dedup the source partition and offset.
    places: dict[Sendable, tuple[int, int] | None] = field(default_factory=dict)  # None: it has more than one

    def place(self, one: Sendable, group: int, at: int) -> None:
        """Note from where a result comes; one of two places cannot be told apart by its content."""
        self.places[one] = (group, at) if self.places.get(one, (group, at)) == (group, at) else None


def recomputed(
    settings: Settings, claimed: Claimed, function: Callable[[DataFrame], DataFrame] | None = None
) -> Recomputed:
    """Compute everything anew."""
    spark, codec = session(settings), codec_of(settings)
    try:
        events = codec.decode(records(batch(spark, settings, claimed.ranges)))
        if settings.dedup.strategy == "window":
            return _deduplicated(settings, codec, identified(events, settings.dedup), function or transform)
        windows_checked(spark, function or windows, codec)
        known = sound(events, settings.windows).persist()
        return _windowed(spark, settings, codec, known, claimed, function or windows)
    finally:
        spark.stop()


def _windowed(  # noqa: PLR0913, PLR0917  all that decides
    spark: SparkSession,
    settings: Settings,
    codec: Codec,
    known: DataFrame,
    claimed: Claimed,
    function: Callable[[DataFrame], DataFrame],
) -> Recomputed:
    found = _dead(known)
    place = (f.col(f"{SOURCE}.partition") == f.col("late_partition")) & (
        f.col(f"{SOURCE}.offset") == f.col("late_offset")
    )
    late = spark.createDataFrame(list(claimed.late), LATE_SCHEMA)
    good = known.where(f.col(ERROR).isNull()).join(f.broadcast(late), place, "left")
    time = f.unix_millis(settings.windows.time)
    for row in good.select(time, "batch", f"{SOURCE}.partition", f"{SOURCE}.offset").collect():
        if row[1] is None:
            found.times.append(row[0])
        else:
            found.late[row[2], row[3]] = row[0]
    found.times.sort()
    own = [name for name in known.columns if name not in {KEY, SOURCE, ERROR}]
    made = partial(_results, codec, function)
    for one, due in made(good.where("batch is null").select(*own), claimed.watermark_ms):
        found.outputs[one] += 1
        found.place(one, 0, due)
    if settings.windows.late == "correct":
        for number in {number for number, _, _ in claimed.late}:
            for (topic, key, value, headers), _ in made(good.where(f.col("batch") == number).select(*own)):
                found.outputs[topic, key, value, (*(headers or ()), CORRECTION)] += 1  # type: ignore[index]
    return found


def _results(
    codec: Codec, function: Callable[[DataFrame], DataFrame], events: DataFrame, due_ms: int | None = None
) -> list[tuple[Sendable, int]]:
    """What the function makes of the events, with its time: what is due by `due_ms`; without it, of late events.

    Told apart here, not by Spark: it would put a condition on the end of a session before the merge of its events.
    """
    found = results(function, events, codec, corrects=due_ms is None)
    table = collected(found.select("outputs", f.unix_millis("time").alias("time")))
    if due_ms is not None:
        table = table.filter(pc.less_equal(table.column("time"), due_ms))
    schemas = codec.output_schemas()
    return [
        (frozen(one), due)
        for part in table.to_batches()
        for row, due in zip(emitted(part.column(0), schemas)[0].by_row(), part.column(1).to_pylist(), strict=True)
        for one in row
    ]


def _deduplicated(
    settings: Settings, codec: Codec, known: DataFrame, function: Callable[[DataFrame], DataFrame]
) -> Recomputed:
    known = known.persist()
    found = _dead(known)
    id_of = f.col(settings.dedup.id_column).alias("_id")
    ids = known.where(f.col(ERROR).isNull()).select(id_of, f"{SOURCE}.partition", f"{SOURCE}.offset").collect()
    names = {(row[1], row[2]): row[0] for row in ids}
    rows = apply(function, known.where(f.col(ERROR).isNull()).drop(ERROR, "_late"), codec)
    table = collected(rows.select("partition", "offset", "outputs"))
    for part in table.to_batches():
        made, _ = emitted(part.column(2), codec.output_schemas())
        for partition, offset, outputs in zip(
            part.column(0).to_pylist(), part.column(1).to_pylist(), made.by_row(), strict=True
        ):
            copy = tuple(frozen(one) for one in outputs)
            found.by_id.setdefault(names[partition, offset], []).append(copy)
            for one in copy:
                found.place(one, partition, offset)
    return found


def _dead(known: DataFrame) -> Recomputed:
    found = Recomputed(read=known.count())
    for error, partition, offset in (
        known.where(f.col(ERROR).isNotNull()).select(ERROR, f"{SOURCE}.partition", f"{SOURCE}.offset").collect()
    ):
        found.dead[reason(error)[0], partition, offset] += 1
    return found


def frozen(one: Any) -> Sendable:
    """A record that can be counted."""
    topic, key, value, headers = one
    return topic, key, value, tuple(headers or ())  # type: ignore[return-value]
