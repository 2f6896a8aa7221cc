"""StampedProducer on a real broker: stamps, numbering over restarts, aborts, and zombies."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.upstream_helpers import END_SECONDS, WATCH_SECONDS, committed, plain, send, stamped
from tests.support.kafka import QUIET, create_topic, fresh, read_committed

from pipeline import upstream
from pipeline.errors import PipelineError, SafeStop
from pipeline.kafka import Abortable, Fatal, Fenced
from pipeline.sections import Identity as Names
from pipeline.upstream import Position, StampedProducer
from pipeline.upstream_attempt import Attempt
from pipeline.upstream_log import OwnLog

if TYPE_CHECKING:
    from pipeline.local.broker import Broker


@pytest.fixture(autouse=True)
def _short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "BLIND_SECONDS", 0.2)


def test_numbers_continue_after_a_restart_and_the_epoch_rises(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=3)
    first = stamped(broker, topic)
    assert (first.position, first.last_committed) == (Position(0, 0), None)
    send(first, "a", "b", "c")
    send(first, "d")
    second = stamped(broker, topic)
    assert (second.position, second.last_committed) == (Position(1, 2), 1)
    send(second, "e", "f")
    assert second.position == Position(1, 3)
    assert committed(broker, topic) == [
        *(("a", 0, 0, 0), ("b", 0, 0, 1), ("c", 0, 0, 2), ("d", 0, 1, 0)),
        *(("e", 1, 2, 0), ("f", 1, 2, 1)),
    ]


def test_a_stored_position_is_continued_without_reading_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = create_topic(broker.bootstrap)
    monkeypatch.delattr(OwnLog, "newest")
    producer = stamped(broker, topic, position=Position(4, 7))
    assert (producer.position, producer.last_committed) == (Position(5, 7), 6)
    monkeypatch.undo()
    send(producer, "a")
    assert committed(broker, topic) == [("a", 5, 7, 0)]


def test_producers_of_one_topic_do_not_disturb_each_other(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    one, two = stamped(broker, topic, "one"), stamped(broker, topic, "two")
    send(one, "a")
    send(two, "b")
    send(one, "c")
    assert (stamped(broker, topic, "one").last_committed, stamped(broker, topic, "two").last_committed) == (1, 0)


def test_rows_carry_key_value_own_headers_and_the_stamp_under_the_given_names(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    names = Names(producer_id="p", producer_epoch="e", txn_id="t", seq="s")
    producer = stamped(broker, topic, "till-é", names=names)
    with producer.transaction() as transaction:
        transaction.send(b"k", None, [("trace", b"\xff"), ("seq", None)])
    (record,) = read_committed(broker.bootstrap, topic)
    assert (record.key, record.value) == (b"k", None)
    stamp = [("p", "till-é".encode()), ("e", b"0"), ("t", b"0"), ("s", b"0")]
    assert record.headers == [("trace", b"\xff"), ("seq", None), *stamp]
    assert stamped(broker, topic, "till-é", names=names).last_committed == 0


def murmur2_of_java(key: bytes) -> int:
    """The hash by which Kafka's Java client chooses a partition, written from its description."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    state = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * mixer & mask
        mixed = (mixed ^ mixed >> 24) * mixer & mask
        state = state * mixer & mask ^ mixed
    if key[whole:]:
        state = (state ^ int.from_bytes(key[whole:], "little")) * mixer & mask
    state = (state ^ state >> 13) * mixer & mask
    return (state ^ state >> 15) & 0x7FFFFFFF


def test_a_key_goes_to_the_partition_that_the_java_client_would_choose(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=7)
    send(stamped(broker, topic), *(f"account-{number}" * (number % 4) + "k" * number for number in range(1, 60)))
    records = read_committed(broker.bootstrap, topic)
    assert len(records) == 59
    assert {record.partition for record in records} == set(range(7))
    assert all(record.partition == murmur2_of_java(record.key or b"") % 7 for record in records)


def test_an_exception_in_the_block_sends_nothing_and_its_number_comes_again(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)
    send(producer, "a")
    with pytest.raises(TypeError, match="unpack"), producer.transaction() as transaction:
        transaction.send(b"lost", b"lost", [None])  # type: ignore[list-item]
    with producer.transaction():
        pass  # without rows no number is used either
    send(producer, "b")
    assert committed(broker, topic) == [("a", 0, 0, 0), ("b", 0, 1, 0)]


def test_one_undeliverable_row_fails_the_transaction_and_its_number_comes_again(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, config={"max.message.bytes": "2000"})
    producer = stamped(broker, topic)
    with pytest.raises(Abortable, match="MSG_SIZE_TOO_LARGE"):
        send(producer, "fits", "too large" * 1_000, "fits, too")
    assert producer.position == Position(0, 0)
    send(producer, "b")
    send(producer, "c")
    assert committed(broker, topic) == [("b", 0, 0, 0), ("c", 0, 1, 0)]


def test_transactions_do_not_nest(broker: Broker) -> None:
    producer = stamped(broker, create_topic(broker.bootstrap))
    with producer.transaction(), pytest.raises(PipelineError, match="do not nest"):
        producer.transaction().__enter__()


def test_a_missing_topic_is_named(broker: Broker) -> None:
    topic = fresh()
    for position in (None, Position(0, 0)):
        with pytest.raises(PipelineError, match=f"{topic}: .*create the topic first"):
            stamped(broker, topic, position=position)


def test_a_second_instance_fences_the_first_which_says_so_and_cannot_write(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=2)
    first = stamped(broker, topic)
    send(first, "a")
    second = stamped(broker, topic)
    for _ in range(2):
        with pytest.raises(Fenced, match=r"'till-1'.*another one with this id.*let only one run"):
            send(first, "zombie")
    send(second, "b")
    with pytest.raises(Fenced):
        send(first, "zombie")
    assert committed(broker, topic) == [("a", 0, 0, 0), ("b", 1, 1, 0)]


def test_an_instance_that_was_replaced_between_commit_and_fence_finds_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(broker.bootstrap, partitions=2)
    first = stamped(broker, topic)
    fence = Attempt.fence

    def replaced_meanwhile(attempt: Attempt) -> None:
        # As if the process had been stopped here: a second instance starts, writes, and only then it goes on.
        monkeypatch.setattr(Attempt, "fence", fence)
        send(stamped(broker, topic), "b")
        fence(attempt)

    monkeypatch.setattr(Attempt, "fence", replaced_meanwhile)
    send(first, "a")
    with pytest.raises(Fenced, match="is not from this instance"):
        send(first, "zombie")
    assert committed(broker, topic) == [("a", 0, 0, 0), ("b", 1, 1, 0)]


def test_a_new_instance_stays_silent_until_a_predecessor_between_two_transactions_has_fenced_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "BLIND_SECONDS", 2 * WATCH_SECONDS)
    topic = create_topic(broker.bootstrap)
    first = stamped(broker, topic)
    fence, sends, refused = Attempt.fence, Attempt.send, threading.Event()

    def write_as_second(second: StampedProducer) -> None:
        monkeypatch.setattr(Attempt, "send", wordless)
        with pytest.raises(Fenced):
            send(second, "b")
        monkeypatch.setattr(Attempt, "send", sends)
        refused.set()

    def wordless(attempt: Attempt, *rows: Any) -> dict[int, int]:
        # As the client does when a line of its log comes in between: it has failed, and does not say why.
        try:
            return sends(attempt, *rows)
        except Fatal as error:
            raise Fatal(str(error)) from error

    def joined_meanwhile(attempt: Attempt) -> None:
        # A second instance starts here and tries to write; the first goes on before it would look at the topic.
        monkeypatch.setattr(Attempt, "fence", fence)
        thread = threading.Thread(target=write_as_second, args=(stamped(broker, topic),), daemon=True)
        thread.start()
        thread.join(WATCH_SECONDS)
        fence(attempt)

    monkeypatch.setattr(Attempt, "fence", joined_meanwhile)
    send(first, "a")
    assert refused.wait(END_SECONDS)
    send(first, "c")
    assert committed(broker, topic) == [("a", 0, 0, 0), ("c", 0, 1, 0)]


def test_a_kafka_producer_is_used_for_one_transaction_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = create_topic(broker.bootstrap)
    producer = stamped(broker, topic)
    used: list[Attempt] = []
    real = Attempt.send

    def counted(attempt: Attempt, *arguments: Any) -> dict[int, int]:
        used.append(attempt)
        return real(attempt, *arguments)

    monkeypatch.setattr(Attempt, "send", counted)
    for value in ("a", "b", "c"):
        send(producer, value)
    assert len(used) == len({id(attempt) for attempt in used}) == 3


def test_the_last_stamp_is_found_behind_many_records_of_others_and_aborted_ones(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=2)
    first = stamped(broker, topic)
    send(first, "a", "b", "c", "d")
    send(first, next(key for key in "efghijkl" if murmur2_of_java(key.encode()) % 2 == 0))
    plain(broker, topic, (b"x" for _ in range(1_500))).commit_transaction(END_SECONDS)
    plain(broker, topic, (b"y" for _ in range(1_500))).abort_transaction(END_SECONDS)
    assert stamped(broker, topic).position == Position(1, 2)


def test_reading_back_waits_for_the_open_transaction_of_another_producer(broker: Broker) -> None:
    # A read_committed reader sees nothing behind it: the last number would be given out twice.
    topic = create_topic(broker.bootstrap)
    first = stamped(broker, topic)
    send(first, "a")
    other = plain(broker, topic, [b"open"])
    send(first, "b")
    started: list[StampedProducer] = []
    thread = threading.Thread(target=lambda: started.append(stamped(broker, topic)))
    thread.start()
    thread.join(WATCH_SECONDS)
    assert thread.is_alive()
    other.commit_transaction(END_SECONDS)
    thread.join(END_SECONDS)
    assert [producer.position for producer in started] == [Position(1, 2)]


def test_when_older_records_were_deleted_an_unknown_producer_must_give_its_position(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    plain(broker, topic, [b"1", b"2"]).commit_transaction(END_SECONDS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        deleted.result(END_SECONDS)
    with pytest.raises(
        SafeStop, match=r"no record of producer 'till-1', but older records were deleted.*Position\(0, 0\)"
    ):
        stamped(broker, topic)
    send(stamped(broker, topic, position=Position(0, 0)), "a")
    assert stamped(broker, topic).position == Position(2, 1)
