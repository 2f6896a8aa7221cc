"""The sections of the settings: each key with its type, its range and its default.

Guarantee: a value that is taken lies within its range. What contradicts another one is for `consistency.py` to say.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.rules import (  # noqa: TC001  pydantic evaluates them
    AppId,
    Bootstrap,
    HeaderName,
    HostName,
    Master,
    Memory,
    OtherBootstrap,
    OtherTopicName,
    OwnFile,
    RegistryUrl,
    StartText,
    TopicName,
)
from pipeline.section import Section


class App(Section):
    """Who this job is: the prefix of its lane topic and of its transactional ids."""

    id: AppId


class Source(Section):
    """Where the log is read."""

    bootstrap: Bootstrap
    topic: TopicName
    start: StartText = "earliest"
    max_offsets_per_trigger: int = Field(default=0, ge=0, le=1_000_000_000)  # 0: as many as pay
    max_poll_records: int = Field(default=5_000, ge=1, le=100_000)
    new_partitions: Literal["stop", "provision"] = "stop"


class Output(Section):
    """Where output rows, dead letters and lane records are written, in one transaction."""

    bootstrap: OtherBootstrap = ""
    topics: tuple[TopicName, ...] = Field(min_length=1)
    dead_letter_topic: TopicName
    partitions: int = Field(default=4, ge=1, le=10_000)
    replication: int = Field(default=3, ge=1, le=9)
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"


class Flow(Section):
    """Which path the events take: row by row through lanes, or through windows and state."""

    path: Literal["lanes", "windows"] = "lanes"


class Windows(Section):
    """Event time on the windows path, and what becomes of events that come too late for it."""

    time: str = Field(default="at", min_length=1)
    watermark_seconds: int = Field(default=600, ge=0, le=31_536_000)
    ahead_seconds: int = Field(default=3_600, ge=0, le=31_536_000)
    late: Literal["drop", "aside", "correct"] = "aside"
    late_topic: TopicName = "late"


class Identity(Section):
    """Header names by which the upstream stamps each record."""

    producer_id: HeaderName = "producer-id"
    producer_epoch: HeaderName = "producer-epoch"
    txn_id: HeaderName = "txn-id"
    seq: HeaderName = "seq"


class Dedup(Section):
    """How re-sent records are known; how much is remembered, and what happens to what cannot be judged."""

    strategy: Literal["sequence", "window"] = "sequence"
    id_column: str = Field(default="id", min_length=1)
    horizon_seconds: int = Field(default=3_600, ge=1, le=31_536_000)
    recent_ids: int = Field(default=2_000, ge=1, le=10_000_000)
    hashes: int = Field(default=64, ge=0, le=100_000)
    ledger_bytes: int = Field(default=917_504, ge=1_024, le=64_000_000)
    stale: Literal["dead-letter", "drop"] = "dead-letter"


class Transaction(Section):
    """Bounds of one Kafka transaction."""

    timeout_ms: int = Field(default=30_000, ge=1_000, le=900_000)
    chunk_rows: int = Field(default=60_000, ge=1, le=1_000_000_000)
    chunk_seconds: float = Field(default=5.0, gt=0, le=450)
    connections: Literal["all", "needed"] = "all"


class Delivery(Section):
    """What a reader finds after a crash, and what becomes visible at once."""

    semantics: Literal["exactly-once", "at-least-once", "at-most-once"] = "exactly-once"
    atomicity: Literal["lane", "batch"] = "lane"


class Reference(Section):
    """A table that `enrich` joins to events: the newest value of each key of a topic of the source cluster."""

    topic: OtherTopicName = ""
    schema_file: str = ""
    max_keys: int = Field(default=100_000, ge=1, le=10_000_000)


class Codec(Section):
    """How source values become columns, and records become values."""

    input: Literal["avro", "json", "bytes"] = "json"
    output: Literal["avro", "json"] = "json"
    schema_file: str = "schemas/payment.avsc"
    writer_schema_file: str = ""
    input_framing: Literal["plain", "confluent"] = "plain"
    output_framing: Literal["plain", "confluent"] = "plain"
    registry_url: RegistryUrl = ""
    registry_user_info_file: OwnFile = ""
    registry_seconds: float = Field(default=30.0, gt=0, le=600)
    output_schema_files: str = "schemas/{topic}.avsc"
    max_bytes: int = Field(default=1_048_576, ge=1, le=1_000_000_000)
    max_items: int = Field(default=100_000, ge=1, le=100_000_000)
    # A walk of one value goes as deep in Python's own stack.
    max_depth: int = Field(default=32, ge=1, le=200)


class Spark(Section):
    """The Spark session."""

    master: Master = "local[*,4]"
    checkpoint: str = ""
    trigger_seconds: float = Field(default=0.0, ge=0, le=86_400)
    driver_memory: Memory = "1g"


class Metrics(Section):
    """The endpoint for Prometheus and supervisors; port 0 switches it off."""

    address: HostName = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    ready_seconds: float = Field(default=120.0, gt=0, le=86_400)


class Log(Section):
    """How events are written to standard error."""

    format: Literal["text", "json"] = "text"
