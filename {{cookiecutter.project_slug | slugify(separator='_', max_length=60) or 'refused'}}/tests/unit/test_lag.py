"""Progress for other tools, beside the batches: newest offsets, the last one at the end, failures never fatal."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from prometheus_client import CollectorRegistry
from tests.support.figures import TOPIC, batch, lane, report, settings_of
from tests.support.kafka import wait_until

from pipeline.observe import background
from pipeline.observe.lag import GroupProgress, Poller
from pipeline.observe.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 10.0


class Group:
    """Stands for the consumer that publishes; a test may hold up its answers or break them."""

    def __init__(self) -> None:
        self.published: list[dict[int, int]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.errors: list[Exception] = []
        self.closed = False

    def has_left(self, errors: int) -> bool:
        return len(self.errors) == errors

    def close(self) -> None:
        self.closed = True

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        assert {place.topic for place in offsets} == {TOPIC}
        assert self.answers.wait(SECONDS)
        if self.errors:
            raise self.errors.pop(0)
        self.published.append({place.partition: place.offset for place in offsets})
        return offsets


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Return the group that the product publishes to."""
    consumer = Group()
    monkeypatch.setattr("pipeline.observe.lag.Consumer", lambda _: consumer)
    return consumer


@pytest.fixture
def progress(group: Group) -> Iterator[GroupProgress]:  # noqa: ARG001  it must be there first
    """Return a publisher whose lanes 0 and 1 are taken over."""
    publisher = GroupProgress(settings_of())
    publisher.on_start(1, {0: lane(0, 5), 1: lane(1, 7)})
    yield publisher
    publisher.close()


def to(next_offset: int) -> Any:
    """Return a batch that brought lane 0 to this offset."""
    return batch(report(lane(0, next_offset)))


def test_where_the_lanes_stand_is_published_at_the_start_and_after_each_batch(
    group: Group, progress: GroupProgress
) -> None:
    wait_until(lambda: group.published == [{0: 5, 1: 7}])
    progress.on_batch(to(9))
    wait_until(lambda: group.published[1:] == [{0: 9, 1: 7}], what="idle lanes are published as well")


def test_a_batch_does_not_wait_for_the_group_and_the_newest_offset_is_what_is_published_next(
    group: Group, progress: GroupProgress
) -> None:
    wait_until(lambda: group.published)
    group.answers.clear()
    for offset in range(10, 20):
        progress.on_batch(to(offset))  # would hang here
    group.answers.set()
    wait_until(lambda: group.published[-1] == {0: 19, 1: 7})
    assert len(group.published) <= 4


def test_the_last_offsets_are_published_before_the_end(group: Group, progress: GroupProgress) -> None:
    for offset in range(10, 100):
        progress.on_batch(to(offset))
    progress.close()
    assert group.published[-1] == {0: 99, 1: 7}
    assert group.closed


def test_what_is_published_already_is_not_published_again_at_the_end(group: Group, progress: GroupProgress) -> None:
    wait_until(lambda: group.published)
    progress.close()
    assert group.published == [{0: 5, 1: 7}]


def test_a_group_that_does_not_answer_does_not_hold_up_the_end(
    group: Group, progress: GroupProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.1)
    wait_until(lambda: group.published)
    group.answers.clear()
    progress.on_batch(to(9))
    progress.close()
    group.answers.set()


def test_a_failure_is_said_once_and_mended_by_the_next_batch(
    group: Group, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pipeline")
    wait_until(lambda: group.published)
    group.errors = [KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))] * 2
    for offset in (10, 11):
        progress.on_batch(to(offset))
        wait_until(partial(group.has_left, 11 - offset))
    progress.on_batch(to(12))
    wait_until(lambda: group.published[-1] == {0: 12, 1: 7})
    wait_until(lambda: "group=recovered" in caplog.text)
    assert caplog.text.count("group=failing") == 1
    assert progress.failure == ""


def test_an_offset_that_the_broker_refuses_is_a_failure(
    group: Group, progress: GroupProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: group.published)

    class Refused:
        error = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)

    monkeypatch.setattr(group, "commit", lambda **_: [Refused()])
    progress.on_batch(to(9))
    wait_until(lambda: "UNKNOWN_MEMBER_ID" in progress.failure)


def test_a_cluster_that_does_not_answer_makes_the_poll_fail_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.lanes.topics.REQUEST_SECONDS", 0.2)
    settings = settings_of()
    metrics = Metrics.build(settings, CollectorRegistry())
    poller = Poller(settings, metrics)
    poller.on_start(1, {})
    wait_until(lambda: poller.failure.startswith("Unreachable: describe topic payments: "), SECONDS)
    assert metrics.lag.polled is None
    poller.close()


def test_a_publisher_that_never_started_can_be_closed() -> None:
    GroupProgress(settings_of()).close()
