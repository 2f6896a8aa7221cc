"""Questions to a cluster whose leaders move: they are asked again, of whoever leads now."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.support.reference import settings_for

from pipeline.errors import Denied, Unreachable
from pipeline.kafka import LEADER_MOVES
from pipeline.lanes.topics import Topics
from pipeline.observe.audit.topics import KafkaTopics
from pipeline.sections import Identity as Names
from pipeline.upstream_log import OwnLog


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


def clients(monkeypatch: pytest.MonkeyPatch, *codes: int | None, of: str = "lanes.topics") -> list[int | None]:
    """Let each new client of a module answer by the next code, and for ever; returns the codes that are left."""
    left = list(codes)

    class Client:
        def __init__(self, _: dict[str, Any]) -> None:
            self.code = left.pop(0)

        def list_offsets(self, asked: dict[TopicPartition, OffsetSpec], **_: Any) -> dict[TopicPartition, Any]:
            return {partition: answered(self.code) for partition in asked}

    monkeypatch.setattr(f"pipeline.{of}.AdminClient", Client)
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


@pytest.mark.parametrize("code", sorted(LEADER_MOVES))
def test_the_audit_asks_whoever_leads_now(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    left = clients(monkeypatch, code, None, code, None, of="observe.audit.topics")
    topics = KafkaTopics(settings_for(), patience=1.0)
    lane: Any = SimpleNamespace(source_topic="source", partition=0, start_offset=2, next_offset=9)
    assert topics.gone(lane) == 5
    assert left == []


def test_the_audit_tells_at_last_that_leaders_move_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.observe.audit.topics.SILENCE_SECONDS", 0.3)
    clients(monkeypatch, *[KafkaError.FENCED_LEADER_EPOCH] * 100, of="observe.audit.topics")
    topics = KafkaTopics(settings_for(), patience=1.0)
    lane: Any = SimpleNamespace(source_topic="source", partition=0, start_offset=2, next_offset=9)
    with pytest.raises(Unreachable, match="FENCED_LEADER_EPOCH"):
        topics.gone(lane)


@pytest.mark.parametrize("code", sorted(LEADER_MOVES))
def test_a_producer_that_looks_for_its_last_stamp_asks_whoever_leads_now(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    told = SimpleNamespace(error=None, partitions=[0])

    class Client:
        """It learns who leads by asking for it."""

        def __init__(self, _: dict[str, Any]) -> None:
            self.asked = 0

        def list_topics(self, topic: str, _: float) -> Any:
            self.asked += 1
            return SimpleNamespace(topics={topic: told})

        def get_watermark_offsets(self, _: TopicPartition, __: float) -> tuple[int, int]:
            if self.asked == 1:
                raise KafkaException(KafkaError(code))
            return 3, 7

        def close(self) -> None:
            pass

    monkeypatch.setattr("pipeline.upstream_log.Consumer", Client)
    assert OwnLog({"bootstrap.servers": "here:1"}, "topic", "till-1", Names()).bounds() == ({0: 3}, {0: 7})
