"""Which broker the integration tests get, and that the one in a container is the same Kafka as the embedded one."""

from __future__ import annotations

import pytest
from tests.support import brokers, container
from tests.support.brokers import GivenBroker, choose, own_broker, shared_broker

from pipeline.errors import PipelineError
from pipeline.local.broker import Broker
from pipeline.local.jars import read_pins


def never() -> bool:
    """Stand for an engine that must not be asked."""
    raise AssertionError


@pytest.mark.parametrize(("answers", "source"), [(True, "container"), (False, "embedded")])
def test_without_a_choice_it_is_a_container_where_an_engine_answers(*, answers: bool, source: str) -> None:
    assert choose("", lambda: answers) == source


@pytest.mark.parametrize("asked", ["container", "embedded", "localhost:9092", "one:9092,two:9092"])
def test_a_choice_is_kept_and_no_engine_is_asked(asked: str) -> None:
    assert choose(asked, never) == asked


@pytest.mark.parametrize("asked", ["docker", "localhost", "a:b", "a:1, b:2", "CONTAINER"])
def test_another_choice_is_refused_with_what_there_is(asked: str) -> None:
    with pytest.raises(pytest.UsageError, match="must be container, embedded or host:port"):
        choose(asked, never)


@pytest.mark.parametrize(
    ("chosen", "shared", "own"),
    [
        ("embedded", Broker, Broker),
        ("container", container.ContainerBroker, container.ContainerBroker),
        ("localhost:9092", GivenBroker, Broker),
    ],
)
def test_a_cluster_that_was_given_is_shared_but_never_hurt(
    monkeypatch: pytest.MonkeyPatch, chosen: str, shared: type[Broker], own: type[Broker]
) -> None:
    monkeypatch.setattr(brokers, "chosen", lambda: chosen)
    assert (type(shared_broker()), type(own_broker())) == (shared, own)


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "DEADLINE_SECONDS", 0.2)
    with pytest.raises(PipelineError, match=r"no Kafka answers at 127\.0\.0\.1:1 \(KAFKA\)"):
        GivenBroker("127.0.0.1:1").start()


def test_an_engine_that_is_not_there_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert not brokers.engine_answers()


def test_the_image_holds_the_kafka_of_the_embedded_broker() -> None:
    embedded = read_pins()["broker"].roots[0].rpartition(":")[2]
    assert f"apache/kafka:{embedded}" == container.DEFAULT_IMAGE
