"""Provisioning: the only place where topics are created, and where lanes begin.

Guarantee: from its genesis record on, every lane has a record, so a missing one is always an error and never a silent
restart. What exists is checked, never altered, but for one thing: a lane topic grows with its source.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec

from pipeline import __version__
from pipeline.errors import BadSettings, SafeStop
from pipeline.kafka import REQUEST_SECONDS, reachable, until_given_up
from pipeline.lanes.columns import Columns
from pipeline.lanes.plans import first_plan
from pipeline.lanes.recall import find, hanging_after
from pipeline.lanes.record import Counters, LaneRecord, decode, encode, lane_key
from pipeline.lanes.takeover import fence, standing, write_record
from pipeline.lanes.token import RESET
from pipeline.lanes.topics import Topic, Topics
from pipeline.rules import parse_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.settings import Settings

LANE_POLICY = "compact"
# A segment is compacted only once it is closed; small ones keep the recall of a busy lane topic short.
LANE_CONFIG = {"cleanup.policy": LANE_POLICY, "segment.bytes": str(16 * 1024 * 1024)}
# A dead letter, or a late record, is its source record with headers added: without room the largest ones would be cut.
LETTER_ROOM_BYTES = 8_192


def provision(settings: Settings, say: Callable[[str], None] = print) -> None:
    """Create what is missing, refuse what is wrong, and give every new lane its first record."""
    topics = Topics(settings.source.bootstrap)
    source = topics.one(settings.source.topic, "source topic")
    output = Topics(settings.output_bootstrap)
    largest = int(topics.config(source.name)["max.message.bytes"])
    _outputs(settings, output, {"max.message.bytes": str(largest + LETTER_ROOM_BYTES)}, say)
    _lane_topic(settings, output, source, say)
    if settings.reference.topic:
        _plan_topic(settings, output, say)
    lanes = range(source.partitions)
    # A partition added to an app that has run holds only unread records: none may be passed over, whatever the setting.
    added = any(until_given_up(partial(_has_run, settings, partition)) for partition in lanes)
    starts = topics.offsets(source.name, lanes, OffsetSpec.earliest()) if added else start_offsets(settings, source)
    for partition in lanes:
        # A topic made a moment ago may have no leader yet: that is tried again like any failed transaction.
        say(until_given_up(partial(_genesis, settings, source, partition, starts[partition])))


def _outputs(settings: Settings, output: Topics, letters: dict[str, str], say: Callable[[str], None]) -> None:
    configs: dict[str, dict[str, str]] = {name: {} for name in settings.output.topics}
    for aside in filter(None, (settings.output.dead_letter_topic, settings.late_topic)):
        configs[aside] = letters
    found = output.describe(configs)
    for name, config in configs.items():
        if name in found:
            say(f"topic {name}: there, {found[name].partitions} partitions")
        else:
            new = NewTopic(name, settings.output.partitions, settings.output.replication, config=config)
            say(_create(output, new))


def _lane_topic(settings: Settings, output: Topics, source: Topic, say: Callable[[str], None]) -> None:
    name = settings.lane_topic
    found = output.describe([name]).get(name)
    if found is None:
        say(_create(output, NewTopic(name, source.partitions, settings.output.replication, config=LANE_CONFIG)))
        return
    check_lane_policy(output, name)
    if found.partitions > source.partitions:
        msg = (
            f"lane topic {name} has {found.partitions} partitions, but source topic {source.name} only "
            f"{source.partitions}: it belongs to another source; give the job another app.id"
        )
        raise SafeStop(msg)
    if found.partitions < source.partitions:
        if settings.shuffled:
            _refuse_growth(settings, source, found.partitions)
        with reachable(output.bootstrap, f"add partitions to {name}", f"Alter on Topic {name}"):
            request = NewPartitions(name, source.partitions)
            output.admin.create_partitions([request], request_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)
        say(f"topic {name}: grown from {found.partitions} to {source.partitions} partitions, as the source did")
    else:
        say(f"topic {name}: there, {found.partitions} partitions")


def _refuse_growth(settings: Settings, source: Topic, lanes: int) -> None:
    """On the shuffled path lanes cannot be added to a job that has run, nor taken back once they are there."""
    if any(until_given_up(partial(_has_run, settings, lane)) for lane in range(lanes)):
        msg = (
            f"source topic {source.name} has {source.partitions} partitions, but the job has run with {lanes} lanes: "
            f"results would change their lanes; {RESET.removeprefix('or ')}"
        )
        raise SafeStop(msg)


def _plan_topic(settings: Settings, output: Topics, say: Callable[[str], None]) -> None:
    Topics(settings.source.bootstrap).one(settings.reference.topic, "reference topic")
    name = settings.plan_topic
    if name in output.describe([name]):
        check_lane_policy(output, name)
    else:
        say(_create(output, NewTopic(name, 1, settings.output.replication, config=LANE_CONFIG)))
    say(until_given_up(partial(first_plan, settings)))


def check_lane_policy(output: Topics, name: str) -> None:
    """A lane topic that also deletes would forget idle lanes, and with them what was written."""
    policy = output.config(name)["cleanup.policy"]
    if policy != LANE_POLICY:
        msg = (
            f"lane topic {name} has cleanup.policy={policy}; it must be {LANE_POLICY} alone, or lane records expire: "
            f"kafka-configs --alter --topic {name} --add-config cleanup.policy={LANE_POLICY}"
        )
        raise SafeStop(msg)


def _create(topics: Topics, topic: NewTopic) -> str:
    what = f"create topic {topic.topic} with replication {topic.replication_factor}"
    with reachable(topics.bootstrap, what, f"Create on Topic {topic.topic}"):
        topics.admin.create_topics([topic], request_timeout=REQUEST_SECONDS)[topic.topic].result(REQUEST_SECONDS)
    return (
        f"topic {topic.topic}: created with {topic.num_partitions} partitions, replication {topic.replication_factor}"
    )


def _has_run(settings: Settings, partition: int, _attempt: int) -> bool:
    key = lane_key(settings.app.id, settings.source.topic, partition)
    lane = find(settings.output_bootstrap, settings.lane_topic, partition, key)
    return lane.value is not None and decode(lane.value, key).run > 0


def _genesis(settings: Settings, source: Topic, partition: int, start: int, _attempt: int) -> str:
    """The first record of a lane, written like any other: fenced, compared, committed."""
    key = lane_key(settings.app.id, source.name, partition)
    lane = find(settings.output_bootstrap, settings.lane_topic, partition, key)
    if lane.value is None:
        transaction = fence(settings, partition)
        lane = find(settings.output_bootstrap, settings.lane_topic, partition, key, hanging_after(settings))
    if lane.value is not None:
        return f"lane {partition}: stands at offset {decode(lane.value, key).next_offset}"
    record = LaneRecord(
        app=settings.app.id,
        source_topic=source.name,
        topic_id=source.id,
        partition=partition,
        run=0,
        start_offset=start,
        next_offset=start,
        producers=Columns.of([]),
        counters=Counters(),
        code_version=__version__,
    )
    write_record(settings, transaction, partition, encode(record), lane.end)
    return f"lane {partition}: begins at offset {start}"


def accept_loss(settings: Settings, say: Callable[[str], None] = print) -> None:
    """Move each lane whose next source records were deleted unread to where its log begins now; they count as lost."""
    topics = Topics(settings.source.bootstrap)
    source = topics.one(settings.source.topic, "source topic")
    firsts = topics.offsets(source.name, range(source.partitions), OffsetSpec.earliest())
    for partition, first in sorted(firsts.items()):
        say(until_given_up(partial(_pass_over, settings, source, partition, first)))


def _pass_over(settings: Settings, source: Topic, partition: int, first: int, _attempt: int) -> str:
    """Move one lane like any other: fenced, recalled, compared, committed. One that lost nothing is left alone."""
    lane, _ = standing(settings, source, partition)
    if lane.next_offset < first:
        transaction = fence(settings, partition)
        lane, end = standing(settings, source, partition, fenced=True)
    # A job that runs may have moved the lane meanwhile: its next offset never falls.
    lost = first - lane.next_offset
    if lost <= 0:
        return f"lane {partition}: nothing is lost, it stands at offset {lane.next_offset}, the log begins at {first}"
    if settings.shuffled:
        msg = (
            f"lane {partition}: on the shuffled path the checkpoint says where to go on, so a loss cannot be accepted: "
            "give the job another app.id and checkpoint, and provision it"
        )
        raise SafeStop(msg)
    counters = replace(lane.counters, lost=lane.counters.lost + lost)
    moved = replace(lane, next_offset=first, counters=counters, code_version=__version__)
    write_record(settings, transaction, partition, encode(moved), end)
    return f"lane {partition}: moved from offset {lane.next_offset} to {first}, {lost} offsets are lost"


def start_offsets(settings: Settings, source: Topic) -> dict[int, int]:
    """Where new lanes begin, by the setting `source.start`."""
    start = parse_start(settings.source.start)
    topics = Topics(settings.source.bootstrap)
    partitions = range(source.partitions)
    if isinstance(start, dict):
        return _given(settings, start, partitions)
    if start == "earliest":
        return topics.offsets(source.name, partitions, OffsetSpec.earliest())
    latest = topics.offsets(source.name, partitions, OffsetSpec.latest())
    if isinstance(start, str):
        return latest
    found = topics.offsets(source.name, partitions, OffsetSpec.for_timestamp(start))
    return {partition: latest[partition] if offset < 0 else offset for partition, offset in found.items()}


def _given(settings: Settings, given: dict[int, int], partitions: range) -> dict[int, int]:
    if set(given) != set(partitions):
        msg = (
            f"source.start = {settings.source.start!r}: name every partition of {settings.source.topic} "
            f"(0 to {partitions[-1]}), and no other"
        )
        raise BadSettings(msg)
    return given
