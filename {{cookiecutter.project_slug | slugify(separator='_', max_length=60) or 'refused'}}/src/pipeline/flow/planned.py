"""A batch of the shuffled path as Spark's checkpoint plans it, and whether the checkpoint belongs to the lanes.

Guarantee: what decides on a batch's results (ranges, watermark, time) is read from where Spark itself reads it when it
runs the batch again, so the token of a replay is that of the first run, or the replay diverges and is stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import SafeStop
from pipeline.flow.checkpoint import LOCAL, Files
from pipeline.lanes.record import decode
from pipeline.lanes.token import RESET, Planned, foreign, lanes_with, other_lanes

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
    return Planned(
        files.query_id(),
        batch_id,
        tuple(first.get(partition, 0) for partition in partitions),
        tuple(until.get(partition, 0) for partition in partitions),
        int(metadata["batchWatermarkMs"]),
        int(metadata["batchTimestampMs"]),
    )


def check_all(plan: Planned, settings: Settings, folder: str, recalled: Mapping[int, Recalled]) -> None:
    """Before a task begins: every lane can skip or write the batch. One that stops alone would let the others write.

    What is recalled is true of every lane: this run has fenced them all, and knows what its own tasks committed.
    """
    lanes = {partition: decode(lane.value) for partition, lane in recalled.items()}
    tokens = {partition: (lane.token, lane.next_offset) for partition, lane in lanes.items()}
    having = lanes_with(tokens, plan)
    if settings.dedup.strategy == "window" and plan.time_ms <= plan.watermark_ms:
        raise SafeStop(clock_went_back(plan, folder.removeprefix(LOCAL), begun=bool(having)))


def clock_went_back(plan: Planned, folder: str, *, begun: bool) -> str:
    """The line for a batch whose time lies behind the horizon: Spark would drop its rows, and has noted that time."""
    to_do = f"no lane has it yet: set the clock right, delete {folder}/offsets/{plan.batch_id} and its .crc"
    if begun:
        to_do = f"some lane has it: restore the newest checkpoint, {RESET}"
    behind = (plan.watermark_ms - plan.time_ms) / 1000
    return (
        f"batch {plan.batch_id} was planned by a clock that stood {behind:g} s before what earlier batches left behind "
        f"as the horizon of dedup; {to_do}, and start again; nothing is lost"
    )


def _offsets(topics: Mapping[str, Mapping[str, int]], settings: Settings) -> dict[int, int]:
    return {int(partition): offset for partition, offset in topics[settings.source.topic].items()}


def state_of(spark: SparkSession, query_id: str, recalled: Mapping[int, Recalled]) -> tuple[int, int]:
    """Rows and bytes of the state after the batch before, as Spark tells them; before a run's first, as lanes do."""
    query = next((one for one in spark.streams.active if one.id == query_id), None)
    progress = None if query is None else query.lastProgress
    if progress is None:
        return last_held(recalled)
    operators = progress["stateOperators"]
    return sum(one["numRowsTotal"] for one in operators), sum(one["memoryUsedBytes"] for one in operators)


def last_held(recalled: Mapping[int, Recalled]) -> tuple[int, int]:
    """What the newest token says of the state; nothing before the first batch of all."""
    tokens = [token for lane in recalled.values() if (token := decode(lane.value).token) is not None]
    newest = max(tokens, key=lambda token: token.batch_id, default=None)
    return (0, 0) if newest is None else (newest.state_rows, newest.state_bytes)
