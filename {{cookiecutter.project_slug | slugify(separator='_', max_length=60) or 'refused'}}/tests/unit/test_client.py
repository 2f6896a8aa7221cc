"""The options of the clients: what is within its range librdkafka takes, and what it refuses is told in a line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import pipeline
from pipeline.address import Address, made
from pipeline.client import Client
from pipeline.errors import BadSettings
from pipeline.kafka import admin_config, consumer_config, producer_config
from pipeline.lanes.topics import Topics
from pipeline.security import Security
from pipeline.settings import Settings, build

CANARY = "c4nary-of-the-clients"
LIMITS = {
    "connect_timeout_ms": (1_000, 120_000),
    "request_timeout_ms": (1_000, 300_000),
    "reconnect_backoff_max_ms": (100, 600_000),
    "metadata_max_age_ms": (1, 3_600_000),
}


def settings_with(timeout_ms: int = 900_000, **client: Any) -> Settings:
    """Return settings with a [client]."""
    return build(
        {
            "app": {"id": "shop"},
            "source": {"bootstrap": "127.0.0.1:1", "topic": "payments"},
            "output": {"topics": ["receipts"], "dead_letter_topic": "dead"},
            "transaction": {"timeout_ms": timeout_ms, "chunk_seconds": 0.5},
            "client": client,
        },
        "pipeline.toml",
    )


@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize("end", [0, 1], ids=["least", "most"])
def test_both_ends_of_every_range_are_taken_by_every_kind_of_client(key: str, end: int) -> None:
    settings = settings_with(**{key: LIMITS[key][end]})
    made(Producer, producer_config(settings, "shop.payments.0"))
    made(Consumer, consumer_config(settings.source.bootstrap)).close()
    made(AdminClient, admin_config(settings.source.bootstrap))


@pytest.mark.parametrize("key", LIMITS)
def test_what_lies_beside_a_range_is_refused_and_0_is_the_client_s_own(key: str) -> None:
    least, most = LIMITS[key]
    own = f"must be 0, which leaves the client's own, or at least {least}"
    rules = {value: own for value in (1, least - 1) if 0 < value < least}
    rules |= {-1: "must be at least 0", most + 1: f"must be at most {most}"}
    for value, rule in rules.items():
        with pytest.raises(BadSettings, match=rf"^pipeline\.toml: client\.{key} = {value}: {rule}$"):
            settings_with(**{key: value})
    assert not settings_with(**{key: 0}).client.librdkafka()


@pytest.mark.parametrize("timeout_ms", [1_000, 30_000, 300_000])
def test_a_request_may_take_as_long_as_its_transaction_and_no_longer(timeout_ms: int) -> None:
    made(Producer, producer_config(settings_with(timeout_ms, request_timeout_ms=timeout_ms), "shop.payments.0"))
    longer = min(timeout_ms + 1, 300_000)
    rule = f"client.request_timeout_ms = {longer}: must be at most transaction.timeout_ms = {longer - 1}"
    with pytest.raises(BadSettings, match=re.escape(rule)):
        settings_with(longer - 1, request_timeout_ms=longer)


def test_what_a_client_refuses_all_the_same_is_one_line_with_its_section_and_without_secrets() -> None:
    turned = Client.model_construct(request_timeout_ms=5)
    with pytest.raises(BadSettings, match=r"^\[client\]: the Kafka client refuses .*socket\.timeout\.ms") as caught:
        Topics(Address("127.0.0.1:1", client=turned))
    assert "\n" not in str(caught.value)


def test_a_secret_in_a_client_s_own_words_is_masked() -> None:
    access = Security(method="mtls")
    config = {"bootstrap.servers": Address("127.0.0.1:1", access), CANARY: "x", "ssl.key.password": CANARY}
    with pytest.raises(BadSettings) as caught:
        made(Producer, config)
    line = str(caught.value)
    assert line.startswith("[client] and [security]: the Kafka client refuses what stands there: ")
    assert "***" in line
    assert CANARY not in line


def test_every_client_of_the_settings_is_made_where_its_refusal_is_told() -> None:
    root = Path(pipeline.__file__).parent
    direct = re.compile(r"(?<![\w.])(?:Producer|Consumer|AdminClient)\(")
    # Those that are not configured by the settings: embedded brokers and the upstream; and a class of another kind.
    other = {"committed.py", "upstream_attempt.py", "upstream_log.py", "state.py"}
    for path in root.rglob("*.py"):
        if path.parent.name != "local" and path.name not in other:
            assert not direct.search(path.read_text("utf-8")), path
