"""Checks before and during a run: whether topics, lanes and log still fit together.

Guarantee: whatever would make a restart lose or repeat records (a topic that was deleted or created anew, data that
retention took unread, a lane ahead of its log) stops the job with one line: topic, partition, offsets, remedy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.acls import check as check_acls
from pipeline.errors import SafeStop, Unreachable, provision_if_new
from pipeline.kafka import GIVE_UP_SECONDS, until_given_up
from pipeline.lanes.provision import check_lane_policy
from pipeline.lanes.record import recreated
from pipeline.lanes.takeover import check_time_out, standing
from pipeline.lanes.task import LaneTask
from pipeline.lanes.token import RESET
from pipeline.lanes.topics import Topic, Topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pipeline.flow.codec import Codec
    from pipeline.settings import Settings

PROVISION = "run `pipeline provision`"
ACCEPT_LOSS = "run `pipeline provision --accept-loss`"


class PartitionsAdded(SafeStop):
    """The source topic has grown; its new partitions have no lanes yet."""


@dataclass(frozen=True)
class Checked:
    """Topics that were found in order, and a way to see whether the source still is."""

    source: Topic
    lanes: int
    max_record_bytes: int
    batch_bytes: int
    topics: Topics
    topic_bytes: Mapping[str, int]
    shuffled: bool = False

    def task(self, settings: Settings, run: int, codec: Codec, stop_file: Path) -> LaneTask:
        """What every lane's task of a run has in common."""
        return LaneTask(
            settings,
            run,
            self.source.id,
            max_record_bytes=self.max_record_bytes,
            batch_bytes=self.batch_bytes,
            stop_file=str(stop_file),
            topic_bytes=self.topic_bytes,
            schemas=codec.output_schemas(),
            stages=codec.stages,
        )

    def check_lanes(self) -> None:
        """Every partition of the source has a lane."""
        self._compare(self.source.partitions)

    def watch(self) -> None:
        """The source is still the same topic, with no more partitions than there are lanes."""
        now = self.topics.describe([self.source.name]).get(self.source.name)
        if now is None:
            msg = f"source topic {self.source.name} was deleted; nothing re-creates it: restore it, or retire the job"
            raise SafeStop(msg)
        if now.id != self.source.id:
            raise SafeStop(recreated(self.source.name))
        self._compare(now.partitions)

    def watch_patiently(self, stop_file: Path) -> None:
        """The same before a batch; a cluster that does not answer is waited for, as transactions wait for it."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return self.watch()
            except Unreachable:
                if stop_file.exists() or time.monotonic() > deadline:
                    raise

    def ends(self) -> dict[int, int]:
        """How far the source can be read by now, lane by lane."""
        return self.topics.offsets(self.source.name, range(self.source.partitions), OffsetSpec.latest())

    def _compare(self, partitions: int) -> None:
        if partitions > self.lanes:
            to_do = f'{PROVISION}, which adds the missing lanes, or set source.new_partitions = "provision"'
            if self.shuffled:
                to_do = f"with more of them results would change their lanes; {RESET.removeprefix('or ')}"
            msg = f"source topic {self.source.name} has {partitions} partitions, but only {self.lanes} lanes: {to_do}"
            raise PartitionsAdded(msg)


def check_start(settings: Settings, path: Path) -> None:
    """Whatever can be told before Spark is started; the job itself checks the topics again. `path`: of the settings."""
    check_topics(settings)
    check_time_out(settings, path)


def check_topics(settings: Settings) -> Checked:
    """All topics are there, with the policies and partition counts the guarantee needs."""
    check_acls(settings)
    topics = Topics(settings.source.bootstrap)
    source = topics.one(settings.source.topic, "source topic")
    output = Topics(settings.output_bootstrap)
    wanted = [settings.lane_topic, settings.output.dead_letter_topic, *settings.output.topics]
    if settings.reference.topic:
        wanted.append(settings.plan_topic)
    found = output.describe(wanted)
    for name in wanted:
        if name not in found:
            remedy = provision_if_new("app") if name == settings.lane_topic else f"{PROVISION}, which creates it"
            msg = f"topic {name} does not exist on {output.bootstrap}: {remedy}"
            raise SafeStop(msg)
    check_lane_policy(output, settings.lane_topic)
    limits = {name: largest(output, name) for name in wanted}
    lanes = found[settings.lane_topic].partitions
    if source.partitions > lanes:
        # Not only a source that has grown: a lane topic made anew may have too few as well, and must not be filled.
        for lane in range(lanes):
            until_given_up(partial(_begun, settings, source, lane))
    checked = Checked(
        source, lanes, limits[settings.lane_topic], min(limits.values()), topics, limits, settings.shuffled
    )
    if settings.source.new_partitions == "stop":
        checked.check_lanes()
    return checked


def _begun(settings: Settings, source: Topic, lane: int, _attempt: int) -> None:
    standing(settings, source, lane)


def largest(topics: Topics, name: str) -> int:
    """The largest record that a topic takes."""
    return int(topics.config(name)["max.message.bytes"])


def check_log(settings: Settings, next_offsets: Mapping[int, int]) -> None:
    """Every lane's next offset still lies within its partition."""
    topics, name = Topics(settings.source.bootstrap), settings.source.topic
    earliest = topics.offsets(name, next_offsets, OffsetSpec.earliest())
    latest = topics.offsets(name, next_offsets, OffsetSpec.latest(), committed=False)
    for partition, offset in sorted(next_offsets.items()):
        if offset < earliest[partition]:
            otherwise = "give the job another app.id and checkpoint" if settings.shuffled else ACCEPT_LOSS
            msg = (
                f"source topic {name} [{partition}]: offsets {offset} to {earliest[partition] - 1} were deleted by "
                f"retention before they were read; restore them, or {otherwise}"
            )
            raise SafeStop(msg)
        if offset > latest[partition]:
            msg = (
                f"source topic {name} [{partition}] ends at offset {latest[partition]}, but its lane stands at "
                f"{offset}: the log was cut or restored from an older copy; restore it, or give the job another app.id"
            )
            raise SafeStop(msg)
