"""All settings, read once from `pipeline.toml` and the environment, then frozen.

Guarantee: what runs is what was written. An unknown key, a value out of range, or two settings
that contradict each other is an error that names file, key, value and rule, before anything starts.
An environment variable `PIPELINE_<SECTION>__<KEY>` wins over the file.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError, model_validator

from pipeline.address import Address
from pipeline.client import Client
from pipeline.consistency import check_together
from pipeline.errors import BadSettings
from pipeline.overlay import check_names, is_setting, overlay
from pipeline.rules import told
from pipeline.section import Section
from pipeline.sections import (
    App,
    Codec,
    Dedup,
    Delivery,
    Flow,
    Identity,
    Log,
    Metrics,
    Output,
    Reference,
    Source,
    Spark,
    Transaction,
    Windows,
)
from pipeline.security import SAME, Access, OutputSecurity, Security

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

# A batch as large as it pays, if nothing is said: a lane costs the same in each, so more lanes have more of it. Each
# lane commits by itself, chunk by chunk, so readers and memory do not feel it; but the driver hears of it at its end.
MOST_OFFSETS, MOST_OF_A_LANE, MOST_OF_ALL = 450_000, 56_250, 3_600_000


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
    def shuffled(self) -> bool:
        """Whether results come from a shuffle, and progress is a token: see `lanes/token.py`."""
        return self.flow.path == "windows" or self.dedup.strategy == "window"

    def most_offsets(self, lanes: int) -> int:
        """How many offsets of all lanes a batch has at most."""
        if self.source.max_offsets_per_trigger:
            return self.source.max_offsets_per_trigger
        if self.shuffled or self.delivery.atomicity == "batch":  # no chunks: transactions grow with it
            return MOST_OFFSETS
        return min(max(MOST_OFFSETS, MOST_OF_A_LANE * lanes), MOST_OF_ALL)

    @property
    def upstream_dedup(self) -> str:
        """What knows a record again that the upstream sent twice: `sequence`, `window`, or `none`."""
        is_judged = self.flow.path != "windows" and self.delivery.semantics != "at-least-once"
        return self.dedup.strategy if is_judged else "none"

    @property
    def late_topic(self) -> str:
        """Where late events are kept; empty where there are none, or where they are dropped."""
        kept = self.flow.path == "windows" and self.windows.late != "drop"
        return self.windows.late_topic if kept else ""

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

    @property
    def trial_id(self) -> str:
        """The transactional id by which a start asks what the brokers grant; nothing is ever written under it."""
        return f"{self.app.id}.{self.source.topic}.trial"

    def transactional_id(self, partition: int) -> str:
        """The id that is a lane's own; the lanes of a task are written under that of the lowest among them."""
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
        raise _refusal(error.errors(include_url=False)[0], where) from None
    check_together(settings, where)
    return settings


def origin_of(key: str, path: Path, environ: Mapping[str, str] = os.environ) -> str:
    """From where a key (`section.key`) takes its value: a variable of the environment, or the file."""
    return overlay({}, environ)[1].get(key, str(path))


def of_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are settings, for a process elsewhere: each known, and within its own rule."""
    check_names(environ, KEYS)
    values, origins = overlay({}, environ)
    try:
        Settings.model_validate(values)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            if one["type"] != "missing":  # what is not given here stands in the file
                raise _refusal(one, lambda key: origins.get(key, "environment")) from None
    return {name: value for name, value in environ.items() if is_setting(name)}


def _refusal(error: ErrorDetails, where: Callable[[str], str]) -> BadSettings:
    section, *names = (str(part) for part in error["loc"])
    key = ".".join((section, *names[:1]))  # of a list the item is shown, not its place
    known = KEYS.get(section, ()) if names else KEYS
    return BadSettings(f"{where(key)}: {told(error, key, known)}")
