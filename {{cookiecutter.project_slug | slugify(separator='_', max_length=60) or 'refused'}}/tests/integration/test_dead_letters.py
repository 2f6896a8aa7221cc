"""Dead letters in use: what does not fit its topic, what is replayed, and records with odd keys and headers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.support.job import payment
from tests.support.kafka import DEADLINE_SECONDS, QUIET, read_committed
from tests.support.lanes import App, fill, provisioned, row
from tests.support.program import settings_file

from pipeline import cli
from pipeline.errors import PipelineError
from pipeline.lanes.identity import parse
from pipeline.lanes.letters import CUT
from pipeline.lanes.replay import Letter, read_letters, replay
from pipeline.lanes.sent_back import SentBack
from pipeline.local.malformed import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.rows import Row

    from pipeline.lanes.transaction import Headers, Sendable
    from pipeline.local.broker import Broker

LIMIT = 20_000
IDENTITY = ("producer-id", "producer-epoch", "txn-id", "seq")


def letters_of(app: App) -> list[Letter]:
    """Return the dead letters once the markers of the last transaction are written."""
    app.letters()
    return list(read_letters(app.settings))


def nameless(offset: int) -> Row:
    """Return a row that becomes a dead letter."""
    return row(offset, [], producer_id=None)


@pytest.mark.bad_input("output larger than its topic takes", "oversized")
def test_an_output_too_large_for_its_topic_becomes_a_dead_letter_before_it_is_produced(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, out_config={"max.message.bytes": str(LIMIT)}, output={"compression": "none"})
    fill(broker.bootstrap, app.source.name, [(b"k", b"v", [])] * 4)
    large = (app.out, b"key", bytes(LIMIT), None)
    headers: Sendable = (app.out, b"key", b"v", [("h", bytes(LIMIT))])
    rows = [app.rows(0, 1)[0], row(1, [app.output(1), large]), row(2, [headers]), app.rows(3, 4)[0]]
    report = app.write(0, 4, rows, topic_bytes={app.out: LIMIT})
    assert app.written() == [0, 3], "all outputs of a record, or none"
    assert app.lane().counters.dead_letters == {"oversized": 2}
    assert report.failures == {}, "the broker never saw it"
    assert [letter.said["detail"] for letter in letters_of(app)] == [
        f"its output to {app.out} has 20131 bytes, the topic takes {LIMIT} (max.message.bytes)",
        f"its output to {app.out} has 20143 bytes, the topic takes {LIMIT} (max.message.bytes)",
    ]


@pytest.mark.parametrize("taken", [LIMIT - 128 - 3 - 1, LIMIT - 128 - 3])
def test_the_largest_record_that_passes_is_taken_by_the_broker(broker: Broker, taken: int) -> None:
    app = provisioned(broker.bootstrap, out_config={"max.message.bytes": str(LIMIT)}, output={"compression": "none"})
    fill(broker.bootstrap, app.source.name, [(b"k", b"v", [])])
    app.write(0, 1, [row(0, [(app.out, b"key", bytes(taken), None)])], topic_bytes={app.out: LIMIT})
    assert len(read_committed(broker.bootstrap, app.out)) == 1


@pytest.mark.bad_input(
    "source record larger than the dead letter topic takes", "its own reason, and a copy that is cut"
)
def test_a_letter_too_large_for_its_topic_is_cut_and_says_so(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    sent: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"k", bytes(LIMIT), [("a", b"1")]),
        (bytes(LIMIT), None, []),
        (b"k", b"v", [("a", bytes(LIMIT))]),
        (b"k", bytes(100), []),
    ]
    fill(broker.bootstrap, app.source.name, sent)
    topic_bytes = {app.settings.output.dead_letter_topic: LIMIT}
    app.write(0, 4, [nameless(offset) for offset in range(4)], topic_bytes=topic_bytes)
    letters = sorted(letters_of(app), key=lambda letter: int(letter.said["offset"]))
    assert [letter.is_cut for letter in letters] == [True, True, True, False]
    assert [dict(letter.headers).get(CUT) for letter in letters] == [b"1,20000,12", b"20000,0,0", b"1,1,20011", None]
    assert [(len(letter.key or b""), len(letter.value or b"")) for letter in letters][3] == (1, 100)
    assert letters[0].headers[0] == ("a", b"1")
    with pytest.raises(PipelineError, match="only a part of the record is left; nothing was sent"):
        replay(app.settings, letters)


BOMB = {"compression.type": "zstd", "message.max.bytes": 1_000_000_000, "batch.size": 400_000_000, "linger.ms": 60_000}


@pytest.mark.bad_input("batch of some kilobytes that unpacks to more than 100 MB", "each record its own")
def test_records_of_a_batch_that_unpacks_to_much_become_dead_letters_as_any(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", bytes(1_000_000), [])] * 130, BOMB)
    app.write(0, 130, [nameless(offset) for offset in range(130)])
    assert [letter.value for letter in app.letters()] == [bytes(1_000_000)] * 130


@pytest.mark.bad_input("batch that unpacks to more than 400 MB", "its own reason, and a copy of which nothing is left")
@pytest.mark.parametrize("dead", [range(90), (3, 20, 84, 85, 89), (5,), (84,), (4, 85)])
def test_a_batch_that_unpacks_to_more_than_readers_take_holds_up_no_lane(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, dead: Sequence[int]
) -> None:
    monkeypatch.setattr("pipeline.kafka.READ_BYTES", 60_000_000)
    app = provisioned(broker.bootstrap)
    small: list[tuple[bytes | None, bytes | None, Headers]] = [(b"k", b"small", [("h", b"1")])] * 5
    fill(broker.bootstrap, app.source.name, small)
    fill(broker.bootstrap, app.source.name, [(b"k", bytes(1_000_000), [])] * 80, BOMB)
    fill(broker.bootstrap, app.source.name, small)
    app.write(0, 90, [nameless(offset) if offset in dead else row(offset, []) for offset in range(90)])
    letters = letters_of(app)
    assert sorted(int(letter.said["offset"]) for letter in letters) == list(dead)
    for letter in letters:
        unreadable = 5 <= int(letter.said["offset"]) < 85
        assert letter.value == (None if unreadable else b"small")
        assert letter.headers == ([(CUT, b"-1,-1,-1")] if unreadable else [("h", b"1")])
        assert letter.is_cut == unreadable


ODD: list[tuple[bytes | None, bytes | None, Headers]] = [
    (None, b"null key", []),
    (b"", b"empty key", []),
    (b"\x00", b"one zero byte", []),
    ("\N{PILE OF POO}".encode(), b"emoji", []),
    (bytes(65_536), b"key of 64 KiB", []),
    (b"tombstone", None, []),
    (b"empty", b"", []),
    (b"header value not UTF-8", b"v", [("x", b"\xff\xfe")]),
    (b"header value of 900 KB", b"v", [("x", bytes(900_000))]),
    (b"10,000 headers", b"v", [(f"h{number}", b"%d" % number) for number in range(10_000)]),
    (b"log injection", b"v", [("x", b"line\nline\x1b[31m")]),
]


@pytest.mark.bad_input("null key, empty key, key of 64 KiB, zero byte, emoji", "unchanged, byte for byte")
@pytest.mark.bad_input("10,000 headers, header of 900 KB, header values that are not UTF-8", "unchanged, byte for byte")
@pytest.mark.bad_input("tombstone and empty value of an unusable record", "unchanged, byte for byte")
def test_odd_keys_values_and_headers_pass_through_a_letter_and_a_replay_byte_for_byte(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, ODD)
    app.write(0, len(ODD), [nameless(offset) for offset in range(len(ODD))])
    letters = letters_of(app)
    assert replay(app.settings, letters) == len(ODD)
    found = read_committed(broker.bootstrap, app.source.name)
    first, again = found[: len(ODD)], found[len(ODD) :]
    assert len(again) == len(ODD)
    by_key = {record.key: record for record in again}
    for record in first:
        back = by_key[record.key]
        assert (back.value, back.headers[: len(record.headers)]) == (record.value, record.headers)
        identity = dict(back.headers[len(record.headers) :])
        assert parse(*(identity[name] for name in IDENTITY)) is not None
        assert (identity["replayed-from"] or b"").startswith(app.settings.output.dead_letter_topic.encode())


def pay(app: App, numbers: range, value: bytes) -> None:
    """Send stamped records to partition 0 of the source."""
    client = Producer({"bootstrap.servers": app.settings.source.bootstrap, **QUIET})
    for number in numbers:
        client.produce(app.source.name, value, b"a", 0, headers=stamp(b"till", 0, 0, number))
    assert client.flush(DEADLINE_SECONDS) == 0


def as_rows(app: App, first: int) -> list[Row]:
    """Return the source's records from an offset on as the lane writer gets them after a fix: all can be decoded."""
    rows: list[Row] = []
    for record in read_committed(app.settings.source.bootstrap, app.source.name):
        if record.offset >= first:
            found = dict(record.headers)
            producer, epoch, txn, seq = (found.get(name) for name in IDENTITY)
            stamps = (producer, epoch, txn, seq)
            made = row(record.offset, [app.output(record.offset)])
            rows.append((made[0], made[1], *stamps, made[6], made[7], made[8], made[9]))
    return rows


def test_a_letter_that_comes_twice_because_retention_took_the_first_is_written_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap)
    pay(app, range(3), payment(b"x"))
    app.write(0, 3, [row(offset, [], seq=offset, error="not decoded") for offset in range(3)])
    letters = letters_of(app)
    assert [letter.said["reason"] for letter in letters] == ["decode"] * 3
    monkeypatch.setattr(SentBack, "look", lambda _self, _wanted: set())
    replay(app.settings, letters)
    replay(app.settings, letters[1:])
    rows = as_rows(app, 3)
    assert len(rows) == 5
    end = rows[-1][0] + 2  # behind the marker
    app.write(3, end, rows)
    assert len(app.written()) == 3
    assert app.lane().counters.verdicts["duplicate"] == 2


def test_the_commands_list_show_and_replay(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k\x1b[31m", b"\xffvalue\n", [("h", b"\x00")]), (b"k", b"w", [])])
    app.write(0, 2, [nameless(0), row(1, [], error="trailing: 2 bytes behind the value")])
    assert len(app.letters()) == 2
    path = settings_file(tmp_path, app.settings)

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pipeline", "dead-letters", *arguments, "--settings", str(path)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said.out

    listed: list[dict[str, Any]] = [json.loads(line) for line in call("list", "--json").splitlines()]
    assert [(entry["reason"], entry["offset"]) for entry in listed] == [("identity", "0"), ("trailing", "1")]
    assert "\x1b" not in call("list")
    shown = call("show", listed[0]["letter"])
    assert "reason: identity" in shown
    assert "value: \\\\xffvalue\\n" in shown
    assert "\x1b" not in shown
    assert "1 dead letters sent back" in call("replay", "--reason", "trailing")
    assert [record.value for record in read_committed(broker.bootstrap, app.source.name)][2:] == [b"w"]


def test_a_letter_that_is_not_there_is_one_line(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap)
    path = settings_file(tmp_path, app.settings)
    monkeypatch.setattr(sys, "argv", ["pipeline", "dead-letters", "show", "0:7", "--settings", str(path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
