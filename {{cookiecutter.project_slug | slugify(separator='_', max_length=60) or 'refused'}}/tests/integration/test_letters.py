"""Dead letters: the original bytes, reason and place in headers behind them, all in the transaction of their chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from tests.support.kafka import DEADLINE_SECONDS, QUIET, Record, fresh, read_committed
from tests.support.lanes import App, fill, provisioned, row

from pipeline import __version__
from pipeline.errors import SafeStop
from pipeline.kafka import TransactionFailed
from pipeline.lanes.recall import Recalled
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from tests.support.rows import Row

    from pipeline.lanes.transaction import Headers
    from pipeline.local.broker import Broker

POSITION = ("reason", "detail", "topic", "partition", "offset", "timestamp", "version")
IDENTITY_DETAIL = b"an identity header is missing, repeated or malformed"


def nameless(offset: int) -> Row:
    """Return a row that becomes a dead letter."""
    return row(offset, [], producer_id=None)


def place(letter: Record) -> dict[str, bytes | None]:
    """Return the headers that the product added, which are the last ones."""
    added = letter.headers[-len(POSITION) :]
    assert [name for name, _ in added] == [f"dead-letter-{name}" for name in POSITION]
    return dict(zip(POSITION, (value for _, value in added), strict=True))


ODD: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"key", b"value", [("a", b"1"), ("b", b"2"), ("a", b"3")]),
    (None, b"no key", []),
    (b"tombstone", None, [("null", None), ("empty", b"")]),
    (b"", b"", [("binary", bytes(range(256))), ("dead-letter-reason", b"an earlier one")]),
    (b"\x00\xff", bytes(range(256)), [("producer-id", b"p"), ("txn-id", b"-1"), ("name \u00e9", b"\xff\xfe")]),
]


def test_a_dead_letter_is_its_record_to_the_byte_with_reason_and_place_behind(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, ODD)
    sent = read_committed(broker.bootstrap, app.source.name)
    app.write(0, len(ODD), [nameless(offset) for offset in range(len(ODD))])
    letters = sorted(app.letters(), key=lambda letter: int(place(letter)["offset"] or b""))
    assert len(letters) == len(sent)
    for letter, original in zip(letters, sent, strict=True):
        assert (letter.key, letter.value) == (original.key, original.value)
        assert letter.headers[: -len(POSITION)] == original.headers
        assert place(letter) == {
            "reason": b"identity",
            "detail": IDENTITY_DETAIL,
            "topic": app.source.name.encode(),
            "partition": b"0",
            "offset": b"%d" % original.offset,
            "timestamp": b"%d" % original.timestamp,
            "version": __version__.encode(),
        }


@pytest.mark.fault("A9")
def test_every_reason_has_its_letter_and_its_count(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, dedup={"recent_ids": 2, "hashes": 2})
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % offset, []) for offset in range(8)])
    zombie = (*row(7, [])[:3], b"0", *row(7, [])[4:])
    restarted = (*row(6, [app.output(6)], seq=8)[:3], b"1", *row(6, [app.output(6)], seq=8)[4:])
    rows: list[Row] = [
        row(0, [app.output(0)], seq=0),
        row(1, [app.output(1)], seq=5),
        row(2, [app.output(2)], seq=6),  # two ids are kept: 0 is forgotten
        row(3, [], seq=0),  # stale
        row(4, [], seq=6, digest=1),  # conflict
        row(5, [], seq=7, error="not JSON: " + "x" * 500),  # decode
        restarted,
        zombie,  # old epoch
    ]
    app.write(0, 8, rows)
    letters = {place(letter)["reason"]: letter for letter in app.letters()}
    found = {reason: letter.value for reason, letter in letters.items()}
    assert found == {b"stale": b"3", b"conflict": b"4", b"decode": b"5", b"old-epoch": b"7"}
    assert place(letters[b"decode"])["detail"] == (b"not JSON: " + b"x" * 500)[:200]
    assert app.lane().counters.dead_letters == {"stale": 1, "conflict": 1, "decode": 1, "old-epoch": 1}
    assert app.written() == [0, 1, 2, 6]


def test_letters_lie_far_apart_and_are_all_found_in_order(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % offset, []) for offset in range(13_000)])
    dead = [0, 1, 4_999, 5_000, 10_001, 12_999]
    rows = [nameless(offset) if offset in dead else row(offset, []) for offset in range(13_000)]
    app.write(0, 13_000, rows)
    assert [letter.value for letter in app.letters()] == [b"%d" % offset for offset in dead]


def test_aborted_upstream_records_and_markers_in_between_are_passed_over(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    for number in range(3):
        upstream = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("upstream"), **QUIET})
        upstream.init_transactions(DEADLINE_SECONDS)
        upstream.begin_transaction()
        upstream.produce(app.source.name, b"%d" % number, b"k", partition=0)
        upstream.flush(DEADLINE_SECONDS)
        if number == 1:
            upstream.abort_transaction(DEADLINE_SECONDS)
        else:
            upstream.commit_transaction(DEADLINE_SECONDS)
    offsets = [record.offset for record in read_committed(broker.bootstrap, app.source.name)]
    assert offsets == [0, 4]
    app.write(0, 6, [nameless(offset) for offset in offsets])
    assert [letter.value for letter in app.letters()] == [b"0", b"2"]


def test_letters_of_a_transaction_that_fails_are_not_seen(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(
        broker.bootstrap,
        out_config={"max.message.bytes": "20000"},
        output={"compression": "none"},
        transaction={"timeout_ms": 1_000, "chunk_seconds": 0.5},
    )
    fill(broker.bootstrap, app.source.name, [(b"k", b"v", [])] * 3)
    monkeypatch.setattr("pipeline.kafka.GIVE_UP_SECONDS", 0.1)
    with pytest.raises(TransactionFailed, match="MSG_SIZE_TOO_LARGE"):
        app.write(0, 3, [nameless(0), row(1, [(app.out, b"key", bytes(30_000), None)]), nameless(2)])
    assert (app.letters(), app.lane().next_offset) == ([], 0)
    app.write(0, 3, [nameless(0), *app.rows(1, 2), nameless(2)])
    assert (len(app.letters()), app.written()) == (2, [1])


def test_a_chunk_that_is_written_again_has_its_letters_once(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % offset, []) for offset in range(5)])
    right = app.recalled()
    report = app.write(0, 5, [nameless(offset) for offset in range(5)], recalled=Recalled(right.value, right.end - 1))
    app.write(0, 5, [nameless(offset) for offset in range(5)])
    assert report.failures == {"moved": 1}
    assert [letter.value for letter in app.letters()] == [b"%d" % offset for offset in range(5)]
    assert app.lane().counters.dead_letters == {"identity": 5}


def delete_before(app: App, offset: int) -> None:
    """Delete the begin of the source topic, as retention does."""
    part = TopicPartition(app.source.name, 0, offset)
    topics = Topics(app.settings.source.bootstrap)
    topics.admin.delete_records([part])[part].result(DEADLINE_SECONDS)


def test_a_record_that_is_gone_stops_the_job_and_is_never_left_out(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % offset, []) for offset in range(5)])
    delete_before(app, 3)
    with pytest.raises(SafeStop, match=rf"source topic {app.source.name} \[0\]: offsets 0 to 2 were deleted"):
        app.write(0, 5, [nameless(offset) for offset in range(5)])
    assert (app.letters(), app.lane().next_offset) == ([], 0)
