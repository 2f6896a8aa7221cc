"""A lane goes from one transactional id to another, since other lanes are in its task: once its markers are written.

A commit is confirmed before its markers are written, and the next fence of the same id waits for them; one of another
id does not. Kafka 4.3.1 may never write them when all its brokers are killed (KAFKA-20734): then only a commit under
the same id, over all lanes of that transaction, is true to what was confirmed.

Guarantee: no transaction is begun over a lane whose last one, under another id, is confirmed and has no marker.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import Unreachable
from pipeline.kafka import GIVE_UP_SECONDS, producer_config, until_given_up
from pipeline.lanes.recall import Recalled
from pipeline.lanes.record import lane_key
from pipeline.lanes.together import Together
from pipeline.lanes.topics import Topics
from pipeline.lanes.transaction import Moved
from pipeline.lanes.writer import RECORD_AND_MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.settings import Settings

# Markers take milliseconds. After so long they are completed by a commit more, behind a fence that waits for them.
LATE_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.02


def settled(settings: Settings, recalled: Mapping[int, Recalled], ids: Mapping[int, str]) -> dict[int, Recalled]:
    """Before lanes are written under these ids: what is now known of those that had to be completed first."""

    def by(lane: int) -> str:
        return recalled[lane].by or settings.transactional_id(lane)

    moving = [lane for lane, name in ids.items() if by(lane) != name]
    if not moving:
        return {}
    completed: dict[int, Recalled] = {}
    for name in sorted({by(lane) for lane in _owed(settings, moving)}):
        lanes = {lane: recalled[lane] for lane in recalled if by(lane) == name}
        completed |= until_given_up(partial(_completed, settings, name, lanes))
    if completed:
        _owed(settings, moving)
    return completed


def _owed(settings: Settings, lanes: list[int]) -> list[int]:
    """Those of the lanes in which a transaction stays open, though it was given some time."""
    late = time.monotonic() + LATE_SECONDS
    while (found := _open(settings, lanes)) and time.monotonic() < late:
        time.sleep(LOOK_AGAIN_SECONDS)
    return found


def _completed(settings: Settings, name: str, lanes: Mapping[int, Recalled], _attempt: int) -> dict[int, Recalled]:
    """Put the records of all lanes that were written under an id once more, and commit: with it what is owed."""
    transaction = Together(producer_config(settings, name))
    transaction.fence()
    try:
        transaction.begin()
        for lane, recalled in lanes.items():
            key = lane_key(settings.app.id, settings.source.topic, lane)
            transaction.put_lane_record(settings.lane_topic, lane, key, recalled.value)
        ends = {lane: recalled.end for lane, recalled in lanes.items()}
        landed = transaction.flush_and_compare_all(ends, dict.fromkeys(lanes, name))
        transaction.commit()
    except Moved:  # by a rival, a newer run for one: the lanes' own writers find out which, and say so
        transaction.abandon()
        return {}
    except BaseException:
        transaction.abandon()
        raise
    return {
        lane: Recalled(recalled.value, landed[lane] + RECORD_AND_MARKER, recalled.by)
        for lane, recalled in lanes.items()
    }


def _open(settings: Settings, lanes: list[int]) -> list[int]:
    """Those of the lanes in whose partition a transaction is open; a cluster that is away is waited for."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            topics, name = _topics(settings.output_bootstrap), settings.lane_topic
            end = topics.offsets(name, lanes, OffsetSpec.latest(), committed=False)
            stable = topics.offsets(name, lanes, OffsetSpec.latest())
        except Unreachable:
            if time.monotonic() > deadline:
                raise
        else:
            return [lane for lane in lanes if stable[lane] < end[lane]]


@lru_cache(maxsize=1)
def _topics(bootstrap: str) -> Topics:
    """A client costs more than what it is asked."""
    return Topics(bootstrap)
