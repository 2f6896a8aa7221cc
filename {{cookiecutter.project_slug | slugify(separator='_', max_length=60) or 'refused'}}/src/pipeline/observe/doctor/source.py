"""Checks of the source topic: policies, clocks, and a sample of its newest records."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.address import made
from pipeline.committed import headers_of
from pipeline.kafka import REQUEST_SECONDS, consumer_config, reachable
from pipeline.lanes.identity import parse
from pipeline.observe.doctor.finding import Finding, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from pipeline.observe.doctor.site import Site
    from pipeline.sections import Identity

# A job that stands still over a night must find all of it in the morning.
SHORT_RETENTION = timedelta(days=1)
# Clocks of a sound network differ by milliseconds.
AHEAD = timedelta(seconds=5)
# Spark counts microseconds in 64 bits: up to the year 294,247.
MOST_AHEAD_MS = 9_000_000_000_000_000
NO_LIMIT_MS = 2**63 - 1
SAMPLE = 300
SAMPLE_SECONDS = 5.0
LOOK_SECONDS = 0.2


def source_topic(site: Site) -> Iterator[Finding]:
    """The topic is there."""
    name = site.settings.source.topic
    found = site.source.topics.describe([name]).get(name)
    if found is None:
        detail = f"{name} does not exist on {site.source.bootstrap}"
        yield fail("source topic", detail, "check source.topic, or create it; nothing here creates a source")
    else:
        yield ok("source topic", f"{name}: {found.partitions} partitions, replication {found.replication}")


def retention(site: Site) -> Iterator[Finding]:
    """Records stay until they are read."""
    name, config = site.source_topic.name, site.source_config
    policy, kept = config["cleanup.policy"], int(config["retention.ms"])
    if "compact" in policy.split(","):
        detail = f"{name}: cleanup.policy={policy}: of a key's records only the newest is sure to be read"
        yield warn("source retention", detail, "use cleanup.policy=delete, unless older values of a key do not matter")
    if "delete" not in policy.split(",") or kept < 0:
        yield ok("source retention", f"{name}: nothing is deleted by time")
    elif timedelta(milliseconds=kept) < SHORT_RETENTION:
        detail = (
            f"{name}: retention.ms={kept} ({timedelta(milliseconds=kept)}): a job that stands for longer loses records"
        )
        yield warn(
            "source retention", detail, f"kafka-configs --alter --topic {name} --add-config retention.ms=604800000"
        )
    else:
        yield ok("source retention", f"{name}: {timedelta(milliseconds=kept)}")
    if int(config["retention.bytes"]) >= 0 and "delete" in policy.split(","):
        detail = f"{name}: retention.bytes={config['retention.bytes']}: a burst may delete records before they are read"
        yield warn("source retention", detail, f"kafka-configs --alter --topic {name} --add-config retention.bytes=-1")


def isolation(_: Site) -> Iterator[Finding]:
    """Said every time, because no broker can check what readers do."""
    detail = "the source is read read_committed; every reader of the output must set isolation.level=read_committed too"
    yield ok("isolation", detail)


def clocks(site: Site) -> Iterator[Finding]:
    """No record comes from the future of this machine."""
    name = site.source_topic.name
    asked = {TopicPartition(name, part): OffsetSpec.max_timestamp() for part in range(site.source_topic.partitions)}
    with reachable(site.source.bootstrap, f"newest timestamps of {name}"):
        answers = site.source.topics.admin.list_offsets(asked, request_timeout=REQUEST_SECONDS)
        newest = max(answer.result(REQUEST_SECONDS).timestamp for answer in answers.values())
    age = timedelta(milliseconds=max(time.time_ns() // 1_000_000 - newest, -MOST_AHEAD_MS))
    if newest < 0:
        yield ok("clocks", f"{name}: no records yet")
    elif -age > AHEAD:
        detail = f"the newest record of {name} is {-age} ahead of this machine's clock"
        yield warn("clocks", detail, "set the clocks here and upstream by NTP; latency figures are wrong until then")
    else:
        yield ok("clocks", f"the newest record of {name} is {max(age, timedelta())} old by this machine's clock")


def timestamps(site: Site) -> Iterator[Finding]:
    """No record can have a timestamp that Spark cannot hold: it would fail on it again and again."""
    name, config = site.source_topic.name, site.source_config
    limit = "message.timestamp.after.max.ms"
    ahead = int(config.get(limit) or NO_LIMIT_MS)
    if config["message.timestamp.type"] != "LogAppendTime" and ahead > MOST_AHEAD_MS:
        detail = f"{name}: {limit}={ahead}: one record from the year 300,000 would stop the job, whenever it is started"
        yield warn("timestamps", detail, f"kafka-configs --alter --topic {name} --add-config {limit}=3600000")
    else:
        yield ok("timestamps", f"{name}: the brokers refuse those that Spark cannot hold")


class Sampled(NamedTuple):
    """What some of the newest records look like."""

    records: int
    without_key: int
    without_identity: int


def records(site: Site) -> Iterator[Finding]:
    """The newest records carry what dedup needs."""
    sampled = sample(site)
    names = site.settings.identity
    if not sampled.records:
        yield ok("keys", "no records yet")
        yield ok("identity headers", "no records yet")
        return
    if sampled.without_key:
        detail = f"{_share(sampled.without_key, sampled)} have no key: a re-send may reach another lane"
        yield warn("keys", detail, "let the upstream set a key on every record")
    else:
        yield ok("keys", f"all of the {sampled.records} newest records have one")
    if sampled.without_identity:
        detail = f"{_share(sampled.without_identity, sampled)} have no valid identity: they become dead letters"
        wanted = ", ".join(name for _, name in names)
        yield warn("identity headers", detail, f"let the upstream stamp each record ({wanted}), or correct [identity]")
    else:
        yield ok("identity headers", f"all of the {sampled.records} newest records are stamped")


def _share(count: int, sampled: Sampled) -> str:
    return f"{count} of the {sampled.records} newest records ({count / sampled.records:.1%})"


def sample(site: Site) -> Sampled:
    """Read some committed records from the end of each partition, for a few seconds at most."""
    topic, topics = site.source_topic, site.source.topics
    partitions = range(min(topic.partitions, SAMPLE))
    first = topics.offsets(topic.name, partitions, OffsetSpec.earliest())
    end = topics.offsets(topic.name, partitions, OffsetSpec.latest())
    starts = {part: max(first[part], end[part] - SAMPLE // len(partitions)) for part in partitions}
    found = list(_tails(site, {part: start for part, start in starts.items() if start < end[part]}))
    names = site.settings.identity
    return Sampled(
        records=len(found),
        without_key=sum(message.key() is None for message in found),
        without_identity=sum(not _has_identity(message, names) for message in found),
    )


def _tails(site: Site, starts: dict[int, int]) -> Iterator[Message]:
    name, bootstrap = site.source_topic.name, site.source.bootstrap
    deadline = time.monotonic() + SAMPLE_SECONDS
    unread, count = set(starts), 0
    with reachable(bootstrap, f"read {name}"), closing(made(Consumer, consumer_config(bootstrap))) as consumer:
        consumer.assign([TopicPartition(name, partition, offset) for partition, offset in starts.items()])
        while unread and count < SAMPLE and time.monotonic() < deadline:
            for message in consumer.consume(SAMPLE, LOOK_SECONDS):
                if (
                    message.error() is not None
                ):  # its end, or a partition that cannot be read now: the others tell enough
                    unread.discard(message.partition())
                elif count < SAMPLE:
                    count += 1
                    yield message


def _has_identity(message: Message, names: Identity) -> bool:
    wanted = (names.producer_id, names.producer_epoch, names.txn_id, names.seq)
    found = [(name, value) for name, value in headers_of(message) or [] if name in wanted]
    values = dict(found)
    return len(values) == len(found) and parse(*(values.get(name) for name in wanted)) is not None
