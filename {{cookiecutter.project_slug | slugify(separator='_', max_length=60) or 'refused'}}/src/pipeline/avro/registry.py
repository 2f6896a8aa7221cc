"""Schemas by their ids, from a Schema Registry, through confluent-kafka's own client.

Guarantee: only a registry that says "no such schema" makes an id unknown. One that is down, slow, or answers nonsense
is asked again until its time is up, and then `Away` is raised: no record is judged by its silence. What is known is
asked once; what is unknown at most once a minute, so that a flood of wrong ids is no flood of requests.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.avro.limits import SCHEMA_MISMATCH, UNKNOWN_SCHEMA, told
from pipeline.avro.login import login

if TYPE_CHECKING:
    from collections.abc import Callable

# How long an unknown id is taken for unknown.
UNKNOWN_SECONDS = 60.0
REQUEST_SECONDS = 5.0
PAUSE_SECONDS = 0.5
# The registry's own code: a plain 404 may come from anything that listens there.
NO_SUCH_SCHEMA, NO_SUCH_SUBJECT = 40403, 40401


class Away(Exception):
    """The registry gave no answer that means anything, for as long as it was given."""


class Refused(Exception):
    """The registry's own word that something cannot be had; its text is what a record's letter says."""


@cache
def registry(url: str, seconds: float, user_info_file: str) -> Registry:
    """One for each registry and process."""
    return Registry(url, seconds, user_info_file=user_info_file)


class Registry:
    """Answers by id or by subject, remembered."""

    def __init__(
        self, url: str, seconds: float, now: Callable[[], float] = time.monotonic, user_info_file: str = ""
    ) -> None:
        """Connect with the first question; `seconds` are what each question may take in all."""
        config: dict[str, Any] = {"url": url, "timeout": min(REQUEST_SECONDS, seconds), "max.retries": 0}
        if user := login(user_info_file):
            config["basic.auth.user.info"] = user
        self._config = config
        self._client = self._connected()
        self._url = url
        self._seconds = seconds
        self._now = now
        self._schemas: dict[int, Any] = {}
        self._refused: dict[int, tuple[float, str]] = {}

    def schema(self, number: int) -> Any:
        """The schema with an id, as JSON; `Refused` if the registry has none, or none of Avro."""
        if number in self._schemas:
            return self._schemas[number]
        until, why = self._refused.get(number, (0.0, ""))
        if self._now() < until:
            raise Refused(why)
        try:
            found = self._asked(lambda: self._avro(self._client.get_schema(number)), number)
        except Refused as error:
            self._refused[number] = (self._now() + UNKNOWN_SECONDS, str(error))
            raise
        self._schemas[number] = found
        return found

    def id_of(self, subject: str, schema: str) -> int:
        """The id under which a subject has a schema; `Refused` if it does not have it."""
        made = _avro_schema(schema)
        return int(self._asked(lambda: self._client.lookup_schema(subject, made).schema_id, subject))

    def register(self, subject: str, schema: str) -> int:
        """Register a schema, once and for all."""
        return int(self._asked(lambda: self._client.register_schema(subject, _avro_schema(schema)), subject))

    def _connected(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415  an extra, needed only here

        return SchemaRegistryClient(self._config)

    def _avro(self, found: Any) -> Any:
        if found.schema_type not in {None, "AVRO"}:
            raise Refused(told(SCHEMA_MISMATCH, f"its schema is of the type {found.schema_type}"))
        if found.references:
            raise Refused(told(SCHEMA_MISMATCH, "its schema refers to others, which is not supported"))
        return json.loads(found.schema_str)

    def _asked(self, question: Callable[[], Any], what: object) -> Any:
        deadline = self._now() + self._seconds
        while True:
            try:
                return question()
            except Refused:
                raise
            except Exception as error:  # noqa: BLE001  nonsense may make the client raise anything
                code = getattr(error, "error_code", None)
                if code in {NO_SUCH_SCHEMA, NO_SUCH_SUBJECT}:
                    raise Refused(told(UNKNOWN_SCHEMA, f"the registry has no schema {what}")) from None
                if getattr(error, "http_status_code", None) in {409, 422}:
                    raise Refused(told(SCHEMA_MISMATCH, f"{what}: {error}")) from None
                self._client = self._connected()  # the old one would remember an answer that was nonsense
                if self._now() > deadline:
                    msg = f"schema registry {self._url}: no answer about {what} for {self._seconds:g} s: {error}"
                    raise Away(msg) from None
            time.sleep(PAUSE_SECONDS)


def _avro_schema(schema: str) -> Any:
    from confluent_kafka.schema_registry import Schema  # noqa: PLC0415  an extra, needed only here

    return Schema(schema, "AVRO")
