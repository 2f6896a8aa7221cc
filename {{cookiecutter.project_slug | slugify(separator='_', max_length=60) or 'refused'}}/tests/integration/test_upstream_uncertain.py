"""StampedProducer on a real broker: commits whose answer is lost are settled, never guessed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.integration.upstream_helpers import (
    END_SECONDS,
    WATCH_SECONDS,
    committed,
    lose_the_answer,
    plain,
    send,
    stamped,
)
from tests.support.kafka import create_topic, read_uncommitted

from pipeline import upstream
from pipeline.errors import Unreachable
from pipeline.kafka import Fatal
from pipeline.upstream import Position
from pipeline.upstream_attempt import Attempt
from pipeline.upstream_log import OwnLog

if TYPE_CHECKING:
    from pipeline.local.broker import Broker


@pytest.fixture(autouse=True)
def _short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "BLIND_SECONDS", 0.2)


def test_an_uncertain_commit_that_happened_is_found_and_not_repeated(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(broker.bootstrap, partitions=3)
    producer = stamped(broker, topic)
    lose_the_answer(monkeypatch, after_commit=True)
    send(producer, "a", "b", "c")
    send(producer, "d")
    assert len(read_uncommitted(broker.bootstrap, topic)) == 4
    assert committed(broker, topic) == [("a", 0, 0, 0), ("b", 0, 0, 1), ("c", 0, 0, 2), ("d", 0, 1, 0)]


def test_an_uncertain_commit_that_did_not_happen_is_repeated_under_its_number(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(broker.bootstrap, partitions=3)
    producer = stamped(broker, topic)
    send(producer, "a")
    lose_the_answer(monkeypatch, after_commit=False, times=2)
    send(producer, "b", "c")
    send(producer, "d")
    assert committed(broker, topic) == [("a", 0, 0, 0), ("b", 0, 1, 0), ("c", 0, 1, 1), ("d", 0, 2, 0)]
    assert len(read_uncommitted(broker.bootstrap, topic)) == 8


def test_nothing_is_aborted_after_an_uncertain_commit(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)
    lose_the_answer(monkeypatch, after_commit=False)
    monkeypatch.delattr(Attempt, "abort")
    send(producer, "a")
    assert committed(broker, topic) == [("a", 0, 0, 0)]


@pytest.mark.parametrize("after_commit", [True, False])
def test_a_commit_that_cannot_be_settled_ends_the_producer_and_the_next_one_knows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, after_commit: bool
) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)

    def unreachable(*_: object) -> None:
        msg = "nothing readable"
        raise Unreachable(msg)

    with monkeypatch.context() as patched:
        lose_the_answer(patched, after_commit=after_commit)
        patched.setattr(OwnLog, "newest", unreachable)
        with pytest.raises(Fatal, match="transaction 0 may be committed or not: nothing readable; start a new"):
            send(producer, "a")
    with pytest.raises(Fatal, match="transaction 0 may be committed or not"):
        send(producer, "other rows")
    assert stamped(broker, topic).last_committed == (0 if after_commit else None)


def test_an_interrupt_in_a_commit_ends_the_producer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)

    def interrupted(_: Attempt) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempt, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        send(producer, "a")
    monkeypatch.undo()
    with pytest.raises(Fatal, match="transaction 0 may be committed or not"):
        send(producer, "other rows")


def test_an_uncertain_commit_behind_the_open_transaction_of_another_is_settled_right(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)
    other = plain(broker, topic, [b"open"])
    lose_the_answer(monkeypatch, after_commit=True)
    thread = threading.Thread(target=send, args=(producer, "a"))
    thread.start()
    thread.join(WATCH_SECONDS)
    assert thread.is_alive()
    other.abort_transaction(END_SECONDS)
    thread.join(END_SECONDS)
    assert committed(broker, topic) == [("a", 0, 0, 0)]
    assert producer.position == Position(0, 1)
