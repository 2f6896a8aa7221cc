"""All settings, read once from `pipeline.toml` and the environment, then frozen.

Guarantee: what runs is what was written. An unknown key, a value out of range, or two settings
that contradict each other is an error that names file, key, value and rule, before anything starts.
An environment variable `PIPELINE_<SECTION>__<KEY>` wins over the file.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from pipeline.consistency import check_together
from pipeline.errors import BadSettings
from pipeline.rules import (
    AppId,
    Bootstrap,
    HeaderName,
    Memory,
    OtherBootstrap,
    StartText,
    TopicName,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENV_PREFIX = "PIPELINE_"
ENV_SEPARATOR = "__"


class Section(BaseModel):
    """A frozen part of the settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any) -> Any:
        """There are no switches: pydantic would read `true` as the number 1."""
        if isinstance(value, bool):
            raise PydanticCustomError("rule", "must not be true or false")  # noqa: EM101  pydantic's template
        return value


class App(Section):
    """Who this job is: the prefix of its lane topic and of its transactional ids."""

    id: AppId


class Source(Section):
    """Where the log is read."""

    bootstrap: Bootstrap
    topic: TopicName
    start: StartText = "earliest"
    max_offsets_per_trigger: int = Field(default=200_000, ge=1, le=1_000_000_000)
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
    ledger_bytes: int = Field(default=524_288, ge=1_024, le=64_000_000)
    stale: Literal["dead-letter", "drop"] = "dead-letter"


class Transaction(Section):
    """Bounds of one Kafka transaction."""

    timeout_ms: int = Field(default=30_000, ge=1_000, le=900_000)
    chunk_rows: int = Field(default=50_000, ge=1, le=1_000_000_000)
    chunk_seconds: float = Field(default=5.0, gt=0)


class Codec(Section):
    """How source values become columns, and records become values."""

    input: Literal["avro", "json"] = "json"
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

    master: str = "local[4,4]"
    checkpoint: str = ""
    trigger_seconds: float = Field(default=0.0, ge=0, le=86_400)
    driver_memory: Memory = "1g"


class Metrics(Section):
    """The endpoint for Prometheus and supervisors; port 0 switches it off."""

    address: str = "127.0.0.1"
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
    flow: Flow = Flow()
    windows: Windows = Windows()
    identity: Identity = Identity()
    dedup: Dedup = Dedup()
    transaction: Transaction = Transaction()
    codec: Codec = Codec()
    spark: Spark = Spark()
    metrics: Metrics = Metrics()
    log: Log = Log()

    @property
    def lane_topic(self) -> str:
        """The compacted topic that holds one lane record per source partition."""
        return f"{self.app.id}.{self.source.topic}.lanes"

    @property
    def shuffled(self) -> bool:
        """Whether results come from a shuffle, and progress is a token: see `lanes/token.py`."""
        return self.flow.path == "windows" or self.dedup.strategy == "window"

    @property
    def group(self) -> str:
        """The ordinary consumer group under which lag tools see the progress."""
        return self.app.id

    @property
    def output_bootstrap(self) -> str:
        """The cluster of the output; the source's unless given apart."""
        return self.output.bootstrap or self.source.bootstrap

    def transactional_id(self, partition: int) -> str:
        """Name a lane: the one name under which it is ever written, by whatever process."""
        return f"{self.app.id}.{self.source.topic}.{partition}"


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
    merged, origins = _overlay(values, environ)
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


def _overlay(values: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Lay the environment's values over the file's, and say which keys they are."""
    merged = {name: dict(part) if isinstance(part, dict) else part for name, part in values.items()}
    origins = {}
    for name, value in sorted(environ.items()):
        if not name.startswith(ENV_PREFIX) or ENV_SEPARATOR not in name:
            continue
        section, key = name.removeprefix(ENV_PREFIX).lower().split(ENV_SEPARATOR, 1)
        origins[f"{section}.{key}"] = origins[section] = f"environment variable {name}"
        part = merged.setdefault(section, {})
        if isinstance(part, dict):  # anything else is refused below, under its own name
            part[key] = tuple(value.split(",")) if key == "topics" else value
    # A whole section is to be blamed on the environment only if the file does not have it.
    return merged, {key: origin for key, origin in origins.items() if key not in values}
