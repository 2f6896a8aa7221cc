"""A batch of the shuffled path as Spark's checkpoint plans it, and whether the checkpoint belongs to the lanes.

Guarantee: what decides on a batch's results (ranges, watermark, time) is read from where Spark itself reads it when it
runs the batch again, so the token of a replay is that of the first run, or the replay diverges and is stopped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pipeline.errors import SafeStop
from pipeline.flow.checkpoint import Files
from pipeline.lanes.record import decode
from pipeline.lanes.token import Planned, foreign, other_lanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pipeline.lanes.recall import Recalled
    from pipeline.settings import Settings

ONE_SOURCE = 2  # lines of a batch in the checkpoint: its metadata, and one for each source


def check_durable(spark: SparkSession, folder: str, recalled: Mapping[int, Recalled]) -> None:
    """The checkpoint can be written, and is the one with which the lanes got as far as they are."""
    files = Files(spark, folder, holds_state=True)
    files.probe()
    query_id = files.query_id()
    for partition, lane in sorted(recalled.items()):
        token = decode(lane.value).token
        if token is not None and token.lanes != len(recalled):
            raise SafeStop(other_lanes(partition, token, len(recalled)))
        if token is not None and token.query_id != query_id:
            raise SafeStop(foreign(partition, token, query_id))


def planned(spark: SparkSession, settings: Settings, folder: str, batch_id: int, starts: Mapping[int, int]) -> Planned:
    """The batch that is about to run; `starts` are where the query's first batch began."""
    files = Files(spark, folder, holds_state=True)
    before = files.planned(batch_id - 1) if batch_id else None
    now = files.planned(batch_id)
    if now is None or (batch_id and before is None):
        msg = f"checkpoint folder ({folder}) does not hold the plan of batch {batch_id}: something else cleans it"
        raise SafeStop(msg)
    if len(now) != ONE_SOURCE:
        msg = f"batch {batch_id} has {len(now) - 1} sources instead of one; is this another Spark version?"
        raise SafeStop(msg)
    metadata, topics = now
    partitions = sorted(starts)
    first = starts if before is None else _offsets(before[-1], settings)
    until = _offsets(topics, settings)
    for_now = Planned(
        files.query_id(),
        batch_id,
        tuple(first.get(partition, 0) for partition in partitions),
        tuple(until.get(partition, 0) for partition in partitions),
        int(metadata["batchWatermarkMs"]),
        int(metadata["batchTimestampMs"]),
    )
    if settings.dedup.strategy == "window" and for_now.time_ms <= for_now.watermark_ms:
        msg = (
            f"the clock of this machine stands {(for_now.watermark_ms - for_now.time_ms) / 1000:g} s before what "
            "earlier batches left behind as the horizon of dedup: set it right, and start again; nothing is lost"
        )
        raise SafeStop(msg)
    return for_now


def _offsets(topics: Mapping[str, Mapping[str, int]], settings: Settings) -> dict[int, int]:
    return {int(partition): offset for partition, offset in topics[settings.source.topic].items()}


def state_of(spark: SparkSession, query_id: str) -> tuple[int, int]:
    """Rows and bytes of the state after the batch before, as Spark tells them; none before the first."""
    progress: Any = None
    with suppress(PySparkException, AttributeError):
        query = next((one for one in spark.streams.active if one.id == query_id), None)
        progress = query.lastProgress if query is not None else None
    operators = progress["stateOperators"] if progress else []
    return sum(one["numRowsTotal"] for one in operators), sum(one["memoryUsedBytes"] for one in operators)
