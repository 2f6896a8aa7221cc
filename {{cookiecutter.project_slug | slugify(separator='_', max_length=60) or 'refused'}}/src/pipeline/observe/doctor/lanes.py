"""Checks of the lane records: each lane has one, of this source topic, and its log still holds what comes next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import PipelineError, provision_if_new
from pipeline.flow.preflight import check_log
from pipeline.lanes.recall import find
from pipeline.lanes.record import decode, lane_key, recreated
from pipeline.lanes.takeover import AT_ONCE
from pipeline.observe.doctor.finding import Finding, fail, of_error, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.doctor.site import Site

# Beyond this share of what the lane topic takes, the largest record is worth a word before it stops the job.
NEARLY_FULL = 0.8


def lanes(site: Site) -> Iterator[Finding]:
    """Every lane can go on where it stands."""
    partitions = range(min(site.lane_topic.partitions, site.source_topic.partitions))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        values = dict(zip(partitions, pool.map(lambda partition: _value(site, partition), partitions), strict=True))
    missing = [partition for partition, value in values.items() if value is None]
    if missing:
        detail = f"no lane record for partitions {missing} of {site.source_topic.name}"
        yield fail("lanes", detail, provision_if_new("lane"))
    found = {
        partition: decode(value, _key(site, partition)) for partition, value in values.items() if value is not None
    }
    if found:
        yield from _standing(site, found)
        yield from _sizes(site, max(len(value or b"") for value in values.values()))


def _value(site: Site, partition: int) -> bytes | None:
    settings = site.settings
    return find(settings.output_bootstrap, settings.lane_topic, partition, _key(site, partition)).value


def _key(site: Site, partition: int) -> bytes:
    return lane_key(site.settings.app.id, site.source_topic.name, partition)


def _standing(site: Site, found: dict[int, LaneRecord]) -> Iterator[Finding]:
    source = site.source_topic
    if any(lane.topic_id != source.id for lane in found.values()):
        yield of_error("lanes", PipelineError(recreated(source.name)))
        return
    next_offsets = {partition: lane.next_offset for partition, lane in found.items()}
    try:
        check_log(site.settings, next_offsets)
    except PipelineError as error:
        yield of_error("lanes", error)
        return
    ends = site.source.topics.offsets(source.name, found, OffsetSpec.latest())
    behind = sum(max(ends[partition] - offset, 0) for partition, offset in next_offsets.items())
    run = max(lane.run for lane in found.values())
    yield ok("lanes", f"{len(found)} of topic {source.name}, newest run {run}, {behind} offsets behind")
    if lost := sum(lane.counters.lost for lane in found.values()):
        remedy = "nothing to do; they were accepted with `pipeline provision --accept-loss`"
        yield warn("lanes", f"{lost} source offsets were lost to retention, unread", remedy)


def _sizes(site: Site, largest: int) -> Iterator[Finding]:
    limit = int(site.configs[site.lane_topic.name]["max.message.bytes"])
    if largest > NEARLY_FULL * limit:
        detail = (
            f"the largest lane record has {largest} bytes, the topic takes {limit}: the job stops when it is reached"
        )
        yield warn("lanes", detail, "raise max.message.bytes of the lane topic, or lower dedup.ledger_bytes")
