"""Which stretch of the log is replayed, and into what: resolved to offsets before anything is started.

Guarantee: the replay's names are none of the live app's; the same command names the same stretch, so that it can be
given again after a kill. `latest` is the end of the log at the moment of the command. Whatever the live app's
delivery, that of a replay is exactly-once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import BadSettings, SafeStop
from pipeline.lanes.provision import start_offsets
from pipeline.lanes.topics import Topics
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

APP_CHARACTERS = 80
DIGEST_CHARACTERS = 8


@dataclass(frozen=True)
class Stretch:
    """Offsets of every partition from `first` to `until` (not included), for an app of their own."""

    live: Settings
    settings: Settings
    into: Mapping[str, str]
    first: Mapping[int, int]
    until: Mapping[int, int]
    low: Mapping[int, int] = field(default_factory=dict)  # where the log begins by now

    def left(self, next_offsets: Mapping[int, int]) -> int:
        """How many offsets are not replayed yet."""
        return sum(
            max(until - next_offsets.get(partition, self.first[partition]), 0)
            for partition, until in self.until.items()
        )

    def check_start(self, began: Mapping[int, int]) -> None:
        """A replay that is taken up again began where it is told to begin, unless retention took that since."""
        for partition, offset in sorted(began.items()):
            told = self.first[partition]
            if offset != told and not offset < told == self.low.get(partition):
                msg = (
                    f"replay {self.settings.app.id} began at offset {offset} of partition {partition}, not at {told}: "
                    "give the same --from to go on, or another --into or --app"
                )
                raise SafeStop(msg)

    def next_ranges(self, next_offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """The next batch: as many in all as a batch of the stream has, shared by what each partition has left."""
        left = {lane: self.until[lane] - offset for lane, offset in next_offsets.items() if offset < self.until[lane]}
        most = min(self.settings.most_offsets(len(next_offsets)), sum(left.values()))
        share = most / max(sum(left.values()), 1)
        return {
            lane: (next_offsets[lane], next_offsets[lane] + min(count, max(int(count * share), 1)))
            for lane, count in left.items()
        }


def stretch_of(live: Settings, start: str, end: str, into: Sequence[str], app: str = "") -> Stretch:
    """Resolve a command; nothing is created by it."""
    if live.shuffled:
        msg = (
            "replay is for the lanes path: state of the shuffled path cannot be cut at an offset; to compute a stretch "
            "anew, give a job another app.id, checkpoint, topics and source.start, and run it"
        )
        raise BadSettings(msg)
    topics = Topics(live.source.bootstrap)
    source = topics.one(live.source.topic, "source topic")
    lanes = range(source.partitions)
    renamed = targets(live, into)
    name = app or name_of(live, renamed)
    settings = _settings(live, name, renamed, _position(start, lanes))
    low = topics.offsets(source.name, lanes, OffsetSpec.earliest())
    high = topics.offsets(source.name, lanes, OffsetSpec.latest())
    first = start_offsets(settings, source)
    until = start_offsets(_settings(live, name, renamed, _position(end, lanes)), source)
    bounded = [{lane: min(max(ends[lane], low[lane]), high[lane]) for lane in lanes} for ends in (first, until)]
    if not any(bounded[0][lane] < bounded[1][lane] for lane in lanes):
        msg = f"--from {start} --to {end}: topic {source.name} holds no record between them"
        raise BadSettings(msg)
    # In this form it names the same offsets for ever.
    begins = f"offsets:{json.dumps({str(lane): offset for lane, offset in bounded[0].items()})}"
    return Stretch(live, _settings(live, name, renamed, begins), renamed, bounded[0], bounded[1], low)


def targets(live: Settings, into: Sequence[str]) -> dict[str, str]:
    """Where each of the live app's outputs goes: `topic` for all of them, or `old=new` for each."""
    named = dict(item.split("=", 1) for item in into if "=" in item)
    rest = [item for item in into if "=" not in item]
    missing = [topic for topic in live.output.topics if topic not in named]
    if len(rest) > 1 or bool(rest) != bool(missing) or set(named) - set(live.output.topics):
        msg = (
            f"--into {' --into '.join(into)}: name one topic for all outputs, or <old>=<new> for each of "
            f"{', '.join(live.output.topics)}"
        )
        raise BadSettings(msg)
    renamed = {**named, **dict.fromkeys(missing, rest[0] if rest else "")}
    taken = {live.source.topic, live.lane_topic, live.plan_topic, live.output.dead_letter_topic, *live.output.topics}
    if clash := taken & set(renamed.values()):
        msg = f"--into: {', '.join(sorted(clash))} belongs to the live app; a replay writes to topics of its own"
        raise BadSettings(msg)
    return renamed


def name_of(live: Settings, renamed: Mapping[str, str]) -> str:
    """An app id for people, and a digest: two replays under one id would pass for one, and the second write nothing."""
    target = re.sub(r"[^a-z0-9_-]", "-", "-".join(dict.fromkeys(renamed.values())).lower())
    digest = sha256(json.dumps(renamed, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARACTERS]
    return f"{f'{live.app.id}-into-{target}'[: APP_CHARACTERS - DIGEST_CHARACTERS - 1]}-{digest}"


def _position(text: str, lanes: range) -> str:
    """`source.start` for what a person types: a bare time, or one offset for all partitions."""
    if text.isdecimal():
        return f"offsets:{json.dumps(dict.fromkeys(map(str, lanes), int(text)))}"
    if text in {"earliest", "latest"} or text.startswith(("time:", "offsets:")):
        return text
    return f"time:{text}"


def _settings(live: Settings, name: str, renamed: Mapping[str, str], start: str) -> Settings:
    values = live.model_dump()
    if name == live.app.id:
        msg = f"--app {name}: that is the live app; a replay needs another"
        raise BadSettings(msg)
    values["app"]["id"] = name
    values["source"]["start"] = start
    values["output"]["topics"] = tuple(dict.fromkeys(renamed.values()))
    values["output"]["dead_letter_topic"] = f"{name}.dead-letters"
    values["metrics"]["port"] = 0  # the live job's
    values["delivery"]["semantics"] = "exactly-once"  # whatever the live job's
    return build(values, origin="replay")
