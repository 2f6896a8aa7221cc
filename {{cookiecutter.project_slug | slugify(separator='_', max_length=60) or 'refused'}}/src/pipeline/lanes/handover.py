"""A lane goes from one transactional id to another, since other lanes are in its task: once its marker is written.

A commit is confirmed before its markers are written, and the next fence of the same id waits for them; one of another
id does not. Kafka 4.3.1 may never write them when all its brokers are killed (KAFKA-20734): then only a commit under
the same id, in the same partition, is true to what was confirmed.

Guarantee: no transaction is begun over a lane whose last one, under another id, is confirmed and has no marker; but for
a lane that somebody else writes as well, which its own writer finds out.
"""

from __future__ import annotations

import logging
import time
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import Stopped, Unreachable
from pipeline.kafka import GIVE_UP_SECONDS, until_given_up
from pipeline.lanes.recall import Recalled
from pipeline.lanes.takeover import fence_id, write_record
from pipeline.lanes.topics import Topics
from pipeline.lanes.transaction import Moved
from pipeline.lanes.writer import RECORD_AND_MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.settings import Settings

# Markers take milliseconds. After so long they are completed by a commit more, behind a fence that waits for them.
LATE_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.01

logger = logging.getLogger("pipeline")


def settled(
    settings: Settings, recalled: Mapping[int, Recalled], ids: Mapping[int, str], stop_file: str = ""
) -> dict[int, Recalled]:
    """Before lanes are written under these ids: what is now known of those that had to be completed first."""
    by = {lane: recalled[lane].by or settings.transactional_id(lane) for lane in ids}
    moving = {lane: recalled[lane] for lane, name in ids.items() if by[lane] != name}
    if not moving:
        return {}
    completed: dict[int, Recalled] = {}
    for lane in _owed(settings, moving, stop_file):
        completed |= until_given_up(partial(_completed, settings, by[lane], lane, recalled[lane]))
    if completed:
        still = _owed(settings, completed, stop_file)
        logger.warning(
            "lanes %s: the brokers never wrote the markers of a confirmed transaction (KAFKA-20734), so it was "
            "completed by another one; %s; its outputs may still be hidden: see docs/runbook.md, Hanging transactions",
            sorted(completed),
            f"still without: {sorted(still)}" if still else "all have theirs now",
        )
    return completed


def _completed(settings: Settings, name: str, lane: int, recalled: Recalled, _attempt: int) -> dict[int, Recalled]:
    """Put a lane's record once more, under the id it was written under, and commit: with it what is owed.

    One lane at a time: an abort for the sake of one would undo what is confirmed in the others.
    """
    transaction = fence_id(settings, name)
    topics = _topics(settings.output_bootstrap)
    high = topics.offsets(settings.lane_topic, [lane], OffsetSpec.latest(), committed=False)[lane]
    if high != recalled.end - 1:  # its marker has come after all, or somebody else writes there
        return {}
    try:
        landed = write_record(settings, transaction, lane, recalled.value, recalled.end, name)
    except Moved:  # by a rival, a newer run for one: the lane's own writer finds out which, and says so
        return {}
    return {lane: Recalled(recalled.value, landed + RECORD_AND_MARKER, recalled.by)}


def _owed(settings: Settings, lanes: Mapping[int, Recalled], stop_file: str) -> list[int]:
    """Those of the lanes whose markers do not come, though they are given some time."""
    late = time.monotonic() + LATE_SECONDS
    while True:
        stable = _stable(settings, list(lanes), stop_file)
        owed = [lane for lane, recalled in lanes.items() if stable[lane] < recalled.end]
        if not owed or time.monotonic() > late:
            return owed
        time.sleep(LOOK_AGAIN_SECONDS)


def _stable(settings: Settings, lanes: list[int], stop_file: str) -> dict[int, int]:
    """How far the lanes' partitions are decided; a cluster that is away is waited for, unless the job is to stop."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return _topics(settings.output_bootstrap).offsets(settings.lane_topic, lanes, OffsetSpec.latest())
        except Unreachable:
            if time.monotonic() > deadline:
                raise
        if Path(stop_file).is_file():
            msg = "stopped on request while the cluster was away"
            raise Stopped(msg)
        _topics.cache_clear()
        time.sleep(LOOK_AGAIN_SECONDS)


@lru_cache(maxsize=1)
def _topics(bootstrap: str) -> Topics:
    """A client costs more than what it is asked."""
    return Topics(bootstrap)
