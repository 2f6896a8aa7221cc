"""Taking the lanes over: newest run wins.

Guarantee: when `take_over` returns, every writer of an earlier run is fenced, every lane record carries this run's
number, and no other run has the same one. A task of an earlier run that looks at its lane finds the higher number
and ends its whole job.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline import __version__
from pipeline.errors import BadSettings, SafeStop
from pipeline.kafka import TransactionFailed, producer_config, until_given_up
from pipeline.lanes.recall import Recalled, hanging_after, recall
from pipeline.lanes.record import decode, encode, lane_key, recreated
from pipeline.lanes.together import Together
from pipeline.lanes.transaction import Transaction
from pipeline.lanes.writer import RECORD_AND_MARKER
from pipeline.settings import origin_of

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.lanes.record import LaneRecord
    from pipeline.lanes.topics import Topic
    from pipeline.settings import Settings

# Lanes are fenced side by side: one at a time, a thousand lanes would take minutes.
AT_ONCE = 16


class Contested(TransactionFailed):
    """Another run took a lane meanwhile; look again, and take a higher number."""


def take_over(settings: Settings, source: Topic) -> tuple[int, dict[int, Recalled]]:
    """Fence every lane and write the new run's number into its record; return it with what was written."""
    return until_given_up(lambda _: _take_all(settings, source))


def _take_all(settings: Settings, source: Topic) -> tuple[int, dict[int, Recalled]]:
    partitions = range(source.partitions)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda partition: _look(settings, source, partition), partitions))
        run = 1 + max(lane.run for lane in found)
        # An earlier run may have had another atomicity: both kinds of writers are shut out.
        if settings.delivery.atomicity == "batch":
            list(pool.map(lambda partition: fence(settings, partition), partitions))
            return run, _take_together(settings, source, run, pool)
        fence_id(settings, settings.batch_id)
        taken = pool.map(lambda partition: _take(settings, source, partition, run), partitions)
        return run, dict(zip(partitions, taken, strict=True))


def fence(settings: Settings, partition: int) -> Transaction:
    """Shut out whoever writes under the lane's own id; what they left open under it is aborted when this returns."""
    return fence_id(settings, settings.transactional_id(partition))


def fence_id(settings: Settings, name: str) -> Transaction:
    """Shut out whoever writes under this transactional id."""
    transaction = Transaction(producer_config(settings, name))
    transaction.fence()
    return transaction


def check_time_out(settings: Settings, path: Path) -> None:
    """The brokers grant the time-out that the settings, of this file, ask for.

    It is tried under an id of its own, so that no running job is disturbed: to read the brokers' configuration needs a
    right on the whole cluster. That this user may use the app's transactional ids is tried as well.
    """
    try:
        until_given_up(lambda _: fence_id(settings, settings.trial_id))
    except BadSettings as error:
        msg = f"{origin_of('transaction.timeout_ms', path)}: {error}"
        raise BadSettings(msg) from None


def _take_together(settings: Settings, source: Topic, run: int, pool: ThreadPoolExecutor) -> dict[int, Recalled]:
    """All lanes in one transaction of the batch id: what is handed over to a batch was written by its own writer."""
    transaction = Together(producer_config(settings, settings.batch_id))
    transaction.fence()
    lanes = range(source.partitions)
    found = dict(zip(lanes, pool.map(lambda lane: standing(settings, source, lane, fenced=True), lanes), strict=True))
    values = {}
    for number, (lane, _) in found.items():
        if lane.run >= run:
            msg = f"lane {number} was taken by run {lane.run} meanwhile"
            raise Contested(msg)
        values[number] = encode(replace(lane, run=run, code_version=__version__))
    ends = {number: end for number, (_, end) in found.items()}
    with transaction:
        transaction.begin()
        for number, value in values.items():
            key = lane_key(settings.app.id, source.name, number)
            transaction.put_lane_record(settings.lane_topic, number, key, value)
        transaction.flush_and_compare_all(ends, {})
        transaction.commit()
    by = settings.batch_id
    return {number: Recalled(value, ends[number] + RECORD_AND_MARKER, by) for number, value in values.items()}


def _look(settings: Settings, source: Topic, partition: int) -> LaneRecord:
    return standing(settings, source, partition)[0]


def _take(settings: Settings, source: Topic, partition: int, run: int) -> Recalled:
    transaction = fence(settings, partition)
    lane, end = standing(settings, source, partition, fenced=True)
    if lane.run >= run:
        msg = f"lane {partition} was taken by run {lane.run} meanwhile"
        raise Contested(msg)
    value = encode(replace(lane, run=run, code_version=__version__))
    write_record(settings, transaction, partition, value, end)
    return Recalled(value, end + RECORD_AND_MARKER)


def write_record(  # noqa: PLR0913, PLR0917  the record, and where it must land
    settings: Settings, transaction: Transaction, partition: int, value: bytes, end: int, before: str = ""
) -> int:
    """A transaction that holds nothing but a lane record, under the same compare-and-set as any other; its offset."""
    key = lane_key(settings.app.id, settings.source.topic, partition)
    with transaction:
        transaction.begin()
        transaction.put_lane_record(settings.lane_topic, partition, key, value)
        landed = transaction.flush_and_compare(end, before)
        transaction.commit()
    return landed


def standing(settings: Settings, source: Topic, partition: int, *, fenced: bool = False) -> tuple[LaneRecord, int]:
    """The record of a lane of this very source topic, and the end of its partition; behind a fence it must not hang."""
    key = lane_key(settings.app.id, source.name, partition)
    patience = hanging_after(settings) if fenced else None
    recalled = recall(settings.output_bootstrap, settings.lane_topic, partition, key, patience)
    lane = decode(recalled.value, key)
    if lane.topic_id != source.id:
        raise SafeStop(recreated(source.name))
    if settings.shuffled != (lane.token is not None) and lane.counters.transactions:
        msg = (
            f"lane {key.decode()} was written on the {'lanes' if settings.shuffled else 'shuffled'} path, and cannot "
            "go on by the other: set flow.path and dedup.strategy back, or give the job another app.id and provision it"
        )
        raise SafeStop(msg)
    return lane, recalled.end
