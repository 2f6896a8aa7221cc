"""Questions to a cluster whose leaders move: they are asked again, of whoever leads now."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from pipeline.errors import Denied, Unreachable
from pipeline.lanes.topics import LEADER_MOVES, Topics


class Found(NamedTuple):
    """An answer."""

    offset: int


def answered(code: int | None) -> Future[Found]:
    """Return what an admin client gives: an answer, or an error."""
    answer: Future[Found] = Future()
    if code is None:
        answer.set_result(Found(7))
    else:
        answer.set_exception(KafkaException(KafkaError(code)))
    return answer


def clients(monkeypatch: pytest.MonkeyPatch, *codes: int | None) -> list[int | None]:
    """Let each new client answer by the next code, and for ever; returns the codes that are left."""
    left = list(codes)

    class Client:
        def __init__(self, _: dict[str, Any]) -> None:
            self.code = left.pop(0)

        def list_offsets(self, asked: dict[TopicPartition, OffsetSpec], **_: Any) -> dict[TopicPartition, Any]:
            return {partition: answered(self.code) for partition in asked}

    monkeypatch.setattr("pipeline.lanes.topics.AdminClient", Client)
    return left


@pytest.mark.parametrize("code", sorted(LEADER_MOVES))
def test_a_client_that_knows_only_the_old_leader_is_replaced(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    left = clients(monkeypatch, code, code, None)
    assert Topics("here:1").offsets("topic", [0], OffsetSpec.latest()) == {0: 7}
    assert left == []


def test_any_other_error_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left = clients(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, None)
    with pytest.raises(Denied, match="TOPIC_AUTHORIZATION_FAILED"):
        Topics("here:1").offsets("topic", [0], OffsetSpec.latest())
    assert left == [None]


def test_leaders_that_move_for_ever_are_an_error_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lanes.topics.REQUEST_SECONDS", 0.3)
    clients(monkeypatch, *[KafkaError.FENCED_LEADER_EPOCH] * 100)
    with pytest.raises(Unreachable, match="FENCED_LEADER_EPOCH"):
        Topics("here:1").offsets("topic", [0], OffsetSpec.latest())
