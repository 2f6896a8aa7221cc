"""All settings, read once from `pipeline.toml` and the environment, then frozen.

Guarantee: what runs is what was written. An unknown key, a value out of range, or two settings
that contradict each other is an error that names file, key, value and rule, before anything starts.
An environment variable `PIPELINE_<SECTION>__<KEY>` wins over the file.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from pipeline.address import Address
from pipeline.client import Client
from pipeline.consistency import check_together
from pipeline.errors import BadSettings
from pipeline.overlay import check_names, overlay
from pipeline.rules import (
    AppId,
    Bootstrap,
    HeaderName,
    HostName,
    Master,
    Memory,
    OtherBootstrap,
    OtherTopicName,
    StartText,
    TopicName,
    told,
)
from pipeline.section import Section
from pipeline.security import SAME, Access, OutputSecurity, Security

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class App(Section):
    """Who this job is: the prefix of its lane topic and of its transactional ids."""

    id: AppId


class Source(Section):
    """Where the log is read."""

    bootstrap: Bootstrap
    topic: TopicName
    start: StartText = "earliest"
    max_offsets_per_trigger: int = Field(default=200_000, ge=1, le=1_000_000_000)
    max_poll_records: int = Field(default=1_000, ge=1, le=100_000)
    new_partitions: Literal["stop", "provision"] = "stop"


class Output(Section):
    """Where output rows, dead letters and lane records are written, in one transaction."""

    bootstrap: OtherBootstrap = ""
    topics: tuple[TopicName, ...] = Field(min_length=1)
    dead_letter_topic: TopicName
    partitions: int = Field(default=4, ge=1, le=10_000)
    replication: int = Field(default=3, ge=1, le=9)
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"


class Identity(Section):
    """Header names by which the upstream stamps each record."""

    producer_id: HeaderName = "producer-id"
    producer_epoch: HeaderName = "producer-epoch"
    txn_id: HeaderName = "txn-id"
    seq: HeaderName = "seq"


class Dedup(Section):
    """How much the ledger remembers, and what happens to what it cannot judge."""

    recent_ids: int = Field(default=2_000, ge=1, le=10_000_000)
    hashes: int = Field(default=64, ge=0, le=100_000)
    ledger_bytes: int = Field(default=917_504, ge=1_024, le=64_000_000)
    stale: Literal["dead-letter", "drop"] = "dead-letter"


class Transaction(Section):
    """Bounds of one Kafka transaction."""

    timeout_ms: int = Field(default=30_000, ge=1_000, le=900_000)
    chunk_rows: int = Field(default=50_000, ge=1, le=1_000_000_000)
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
    registry_url: str = ""
    registry_seconds: float = Field(default=30.0, gt=0, le=600)
    output_schema_files: str = "schemas/{topic}.avsc"
    max_bytes: int = Field(default=1_048_576, ge=1, le=1_000_000_000)
    max_items: int = Field(default=100_000, ge=1, le=100_000_000)
    # A walk of one value goes as deep in Python's own stack.
    max_depth: int = Field(default=32, ge=1, le=200)


class Spark(Section):
    """The Spark session."""

    master: Master = "local[4,4]"
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


class Settings(Section):
    """Everything, frozen."""

    app: App
    source: Source
    output: Output
    identity: Identity = Identity()
    dedup: Dedup = Dedup()
    transaction: Transaction = Transaction()
    delivery: Delivery = Delivery()
    reference: Reference = Reference()
    codec: Codec = Codec()
    spark: Spark = Spark()
    metrics: Metrics = Metrics()
    log: Log = Log()
    client: Client = Client()
    security: Security = Security()
    output_security: OutputSecurity = OutputSecurity()

    @model_validator(mode="after")
    def _locked(self) -> Self:
        """Let the source's address say how it is entered, so that nobody can connect to it in another way."""
        address = Address(self.source.bootstrap, self.security, self.client, self.group)
        locked = self.source.model_copy(update={"bootstrap": address})
        self.__dict__["source"] = locked
        return self

    @property
    def lane_topic(self) -> str:
        """The compacted topic that holds one lane record per source partition."""
        return f"{self.app.id}.{self.source.topic}.lanes"

    @property
    def group(self) -> str:
        """The ordinary consumer group under which lag tools see the progress."""
        return self.app.id

    @property
    def output_bootstrap(self) -> str:
        """The cluster of the output and how it is entered; the source's unless given apart."""
        brokers = self.output.bootstrap or self.source.bootstrap
        return Address(brokers, self._output_access, self.client, self.group)

    @property
    def _output_access(self) -> Access:
        return self.security if self.output_security.method == SAME else self.output_security

    @property
    def transactional_ids(self) -> str:
        """What all transactional ids of the app begin with."""
        return f"{self.app.id}.{self.source.topic}."

    @property
    def plan_topic(self) -> str:
        """The compacted topic that holds the plan of the batch in hand, in jobs with reference data."""
        return f"{self.app.id}.{self.source.topic}.plans"

    @property
    def plan_id(self) -> str:
        """The transactional id under which plans are written."""
        return f"{self.app.id}.{self.source.topic}.plan"

    @property
    def batch_id(self) -> str:
        """The transactional id under which whole batches are written; no lane's, since those end in numbers."""
        return f"{self.app.id}.{self.source.topic}.batch"

    def transactional_id(self, partition: int) -> str:
        """Name a lane: the one name under which it is ever written, by whatever process."""
        return f"{self.transactional_ids}{partition}"


# Every section and its keys.
KEYS = {
    name: tuple(field.annotation.model_fields)
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type(Section))
}


def load(path: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read, overlay, check and freeze the settings."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"{path}: no such settings file; give one with --settings"
        raise BadSettings(msg) from None
    except OSError as error:
        msg = f"{path}: the settings file cannot be read: {error.strerror}"
        raise BadSettings(msg) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{path}: not valid TOML: {error}"
        raise BadSettings(msg) from None
    check_names(environ, KEYS)
    merged, origins = overlay(values, environ)
    return build(merged, origin=str(path), origins=origins)


def build(values: Mapping[str, Any], origin: str = "settings", origins: Mapping[str, str] | None = None) -> Settings:
    """Check the values of all sections; `origins` says which keys (`section.key`) do not come from `origin`."""

    def where(key: str) -> str:
        return (origins or {}).get(key, origin)

    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        section, *names = (str(part) for part in first["loc"])
        key = ".".join((section, *names[:1]))  # of a list the item is shown, not its place
        known = KEYS.get(section, ()) if names else KEYS
        msg = f"{where(key)}: {told(first, key, known)}"
        raise BadSettings(msg) from None
    check_together(settings, where)
    return settings
