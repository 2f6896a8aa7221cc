"""The clean stop: no transaction is left open behind a job that ended.

Guarantee: after `close_lanes` every lane partition ends in a marker, so that no reader waits for a transaction that
nobody will finish. Workers outlive a stopped query by about two seconds, so they are waited for before the fence.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import Denied, Unreachable
from pipeline.kafka import TransactionFailed
from pipeline.lanes.takeover import fence_id
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.settings import Settings

logger = logging.getLogger("pipeline")

# spark.python.task.killTimeout (2 s) and a margin: a worker between two chunks may still begin a transaction.
WORKERS_SECONDS = 3.0
SETTLE_SECONDS = 30.0
LOOK_SECONDS = 0.2
# What stays open in a lane after every lane was fenced so often is a rival's, or hangs for ever: see `recall.py`.
ENOUGH_FENCES = 3


def end_lanes(settings: Settings, partitions: int, *, workers_may_run: bool, failed: bool) -> None:
    """Close the lanes behind a job. Of one that failed the failure is told; the next run fences what this could not."""
    with suppress(Unreachable, Denied) if failed else nullcontext():
        blocked = close_lanes(settings, partitions, workers_may_run=workers_may_run)
        if own := [name for name in blocked if _is_lane(settings, name)]:
            logger.warning(
                "open=%s could not be fenced: readers wait there for the next run, or transaction.timeout_ms = %d; "
                "if for longer, see Hanging transactions in docs/runbook.md",
                ", ".join(own),
                settings.transaction.timeout_ms,
            )


@contextmanager
def passed_on(stop: threading.Event, stop_file: Path) -> Iterator[None]:
    """Tell the tasks of a stop as soon as it is asked for, while this thread waits for them."""
    over = threading.Event()

    def look() -> bool:
        if stop.is_set():
            stop_file.touch()
        return stop.is_set()

    def watch_out() -> None:
        while not over.wait(LOOK_SECONDS) and not look():
            pass

    look()
    watch = threading.Thread(target=watch_out, name="stop", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def open_partitions(settings: Settings) -> list[str]:
    """Partitions of lanes, outputs and dead letters in which some transaction is open."""
    topics = Topics(settings.output_bootstrap)
    names = [settings.lane_topic, settings.output.dead_letter_topic, *settings.output.topics]
    blocked = []
    for name, topic in sorted(topics.describe(names).items()):
        stable = topics.offsets(name, range(topic.partitions), OffsetSpec.latest())
        end = topics.offsets(name, range(topic.partitions), OffsetSpec.latest(), committed=False)
        blocked += [f"{name} [{partition}]" for partition in stable if stable[partition] < end[partition]]
    return blocked


def close_lanes(settings: Settings, partitions: int, *, workers_may_run: bool) -> list[str]:
    """End what is open; returns what stays open, which then belongs to other writers of the output topics."""
    if workers_may_run:
        time.sleep(WORKERS_SECONDS)
    deadline = time.monotonic() + SETTLE_SECONDS
    blocked = open_partitions(settings)
    fenced = 0
    while (blocked or workers_may_run) and fenced < ENOUGH_FENCES and time.monotonic() < deadline:
        workers_may_run = False
        shut_out = [_shut_out(settings, name) for name in writers(settings, partitions)]
        fenced += all(shut_out)
        blocked = open_partitions(settings)
        if not any(_is_lane(settings, name) for name in blocked):
            break
    return blocked


def _is_lane(settings: Settings, partition: str) -> bool:
    return partition.startswith(f"{settings.lane_topic} ")


def writers(settings: Settings, partitions: int) -> list[str]:
    """The transactional ids under which this job writes."""
    if settings.delivery.atomicity == "batch":
        return [settings.batch_id]
    return [settings.transactional_id(partition) for partition in range(partitions)]


def _shut_out(settings: Settings, name: str) -> bool:
    try:
        fence_id(settings, name)
    except TransactionFailed:
        return False  # fenced by a newer run, which then owns the lane; or unreachable: the next round tells
    return True
