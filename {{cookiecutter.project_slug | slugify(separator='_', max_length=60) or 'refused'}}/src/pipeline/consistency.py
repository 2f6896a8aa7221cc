"""Settings that are right one by one, and contradict each other.

Guarantee: each topic has one role, each part of the identity its own header, a chunk fits into its transaction, and a
batch is made visible at once only where it is written by a transaction. The shuffled path has its own rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.avro import login
from pipeline.errors import BadSettings
from pipeline.locks import faults
from pipeline.rules import TOPIC_CHARACTERS, URI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.settings import Settings


def check_together(settings: Settings, where: Callable[[str], str]) -> None:
    """Raise the first contradiction; `where` says for a key (`section.key`) from where its value comes."""
    own = (_topics, _headers, _chunks, _requests, _remembered, _ready, _delivery, _reference)
    for find in (*own, _registry, _shuffled, _locks):
        for key, fault in find(settings):
            msg = f"{where(key)}: {key} = {fault}"
            raise BadSettings(msg)


def _topics(settings: Settings) -> Iterator[tuple[str, str]]:
    """Find loops: topics with two roles, also under the names that Kafka's metrics give them."""
    roles = [
        ("source.topic", settings.source.topic),
        *(("output.topics", topic) for topic in settings.output.topics),
        ("output.dead_letter_topic", settings.output.dead_letter_topic),
        ("<app.id>.<source.topic>.lanes", settings.lane_topic),
    ]
    if settings.reference.topic:
        roles += [("reference.topic", settings.reference.topic), ("<app.id>.<source.topic>.plans", settings.plan_topic)]
    seen: dict[str, tuple[str, str]] = {}
    for role, topic in roles:
        if topic in {".", ".."} or topic.startswith("__"):
            yield role, f"{topic!r}: reserved by Kafka; choose another name"
        if len(topic) > TOPIC_CHARACTERS:
            yield role, f"{topic!r}: {len(topic)} characters, but Kafka takes {TOPIC_CHARACTERS}; shorten app.id"
        folded = re.sub(r"[._]", "_", topic)
        if folded in seen:
            other, name = seen[folded]
            alike = "is the same topic as" if name == topic else "differs only in . and _, and clashes in metrics, with"
            yield role, f"{topic!r} {alike} {other} = {name!r}; each topic has one role and its own name"
        seen[folded] = role, topic


def _headers(settings: Settings) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for key, name in settings.identity:
        if name in seen:
            yield f"identity.{key}", f"{name!r} is the same header as identity.{seen[name]}; each needs its own"
        seen[name] = key


def _registry(settings: Settings) -> Iterator[tuple[str, str]]:
    """Framed values need a registry, and perhaps a login for it."""
    codec = settings.codec
    if "confluent" in {codec.input_framing, codec.output_framing} and not codec.registry_url:
        yield "codec.registry_url", "'': framed values need it, for example https://registry:8081"
    if codec.input == "bytes" and codec.input_framing != "plain":
        yield (
            "codec.input_framing",
            f"{codec.input_framing!r}: codec.input = 'bytes' takes values as they are; use 'plain'",
        )
    yield from login.faults(codec)


def _delivery(settings: Settings) -> Iterator[tuple[str, str]]:
    """Without a transaction around the output nothing holds a batch together."""
    delivery = settings.delivery
    if delivery.atomicity == "batch" and delivery.semantics != "exactly-once":
        fault = f"'batch': needs delivery.semantics = 'exactly-once', not {delivery.semantics!r}"
        yield "delivery.atomicity", fault


def _reference(settings: Settings) -> Iterator[tuple[str, str]]:
    """A table without columns cannot be joined."""
    if settings.reference.topic and not settings.reference.schema_file:
        yield "reference.schema_file", "'': needed with reference.topic, for example schemas/account.avsc"


def _shuffled(settings: Settings) -> Iterator[tuple[str, str]]:
    """What the shuffled path leans on, and what it cannot do at once."""
    if settings.flow.path == "windows" and settings.dedup.strategy == "window":
        fault = "'window': Spark has one watermark for a query, and windows of event time need it; "
        yield "dedup.strategy", f"{fault}let one job dedup into a topic, and another one read its windows"
    if settings.shuffled:
        yield from _of_the_lanes_path(settings)
    if settings.shuffled and not settings.spark.checkpoint:
        fault = "'': on the shuffled path the state is in the checkpoint alone; name a durable folder"
        yield "spark.checkpoint", f"{fault}, for example /var/lib/pipeline/checkpoint or s3a://bucket/pipeline"
    place, master = settings.spark.checkpoint, settings.spark.master
    if settings.shuffled and not URI.match(place) and not master.startswith("local"):
        fault = f"{place!r}: a path is each machine's own, but all executors of {master} must see the state"
        yield "spark.checkpoint", f"{fault}; name it as hdfs://, s3a://, or file:// where all have the same disk"
    if settings.late_topic and settings.late_topic not in settings.output.topics:
        yield "windows.late_topic", f"{settings.late_topic!r}: late events are written there; add it to output.topics"


def _of_the_lanes_path(settings: Settings) -> Iterator[tuple[str, str]]:
    """What is written row by row alone: results of a shuffle are exactly-once by their token, and have no table."""
    delivery, table = settings.delivery, settings.reference.topic
    cause = "flow.path = 'windows'" if settings.flow.path == "windows" else "dedup.strategy = 'window'"
    if delivery.semantics != "exactly-once":
        yield "delivery.semantics", f"{delivery.semantics!r}: with {cause} delivery is always 'exactly-once'; use that"
    if delivery.atomicity != "lane":
        yield (
            "delivery.atomicity",
            f"{delivery.atomicity!r}: with {cause} each lane has its own transaction; use 'lane'",
        )
    if settings.source.new_partitions == "provision":
        yield (
            "source.new_partitions",
            f"'provision': with {cause} results would change their lanes with the number of partitions; use 'stop'",
        )
    if table:
        yield (
            "reference.topic",
            f"{table!r}: no enrichment with {cause}; enrich in a job of its own, and read its output",
        )


def _locks(settings: Settings) -> Iterator[tuple[str, str]]:
    """Secrets are looked for where they are named, before anything needs them."""
    yield from faults(settings.security)
    yield from faults(settings.output_security)


def _chunks(settings: Settings) -> Iterator[tuple[str, str]]:
    """Rows are gathered before their transaction begins, but what took long to gather may take as long to write."""
    limits = settings.transaction
    if limits.chunk_seconds * 1000 > limits.timeout_ms / 2:
        half = f"half of transaction.timeout_ms = {limits.timeout_ms}"
        fault = f"{limits.chunk_seconds:g}: must be at most {half}, or a chunk may outlive its transaction"
        yield "transaction.chunk_seconds", fault


def _requests(settings: Settings) -> Iterator[tuple[str, str]]:
    """A request that outlived its transaction would be waited for in vain; librdkafka refuses it."""
    asked, limit = settings.client.request_timeout_ms, settings.transaction.timeout_ms
    if asked > limit:
        yield "client.request_timeout_ms", f"{asked}: must be at most transaction.timeout_ms = {limit}"


def _remembered(settings: Settings) -> Iterator[tuple[str, str]]:
    """Hashes are kept of ids that are remembered."""
    hashes, ids = settings.dedup.hashes, settings.dedup.recent_ids
    if hashes > ids:
        yield "dedup.hashes", f"{hashes}: must be at most dedup.recent_ids = {ids}: only of these a hash can be kept"


def _ready(settings: Settings) -> Iterator[tuple[str, str]]:
    """A job that is behind commits once in a while, and must not be taken for one that is stuck meanwhile."""
    pause, limit = settings.spark.trigger_seconds, settings.metrics.ready_seconds
    if settings.metrics.port and pause >= limit:
        rule = f"must be less than metrics.ready_seconds = {limit:g}"
        yield "spark.trigger_seconds", f"{pause:g}: {rule}, or a job that is behind is never ready between two batches"
