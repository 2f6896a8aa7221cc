"""Dead letters sent back: each is in the source once and only once, whatever is killed, however often it is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.armed import Faults
from tests.support.job import SCHEMA, new_app
from tests.support.kafka import DEADLINE_SECONDS, QUIET, fresh, read_committed, read_uncommitted, wait_until
from tests.support.lanes import App, fill, provisioned, row
from tests.support.program import settings_file

from pipeline.lanes.replay import PART, read_letters, replay

if TYPE_CHECKING:
    from pipeline.local.broker import Broker

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 90.0
# One transaction is not enough for so many.
LETTERS = PART + 100
WATCH_SECONDS = 1.0


def with_letters(broker: Broker, count: int) -> App:
    """Return an app all of whose source records became dead letters."""
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % number, []) for number in range(count)])
    app.write(0, count, [row(offset, [], producer_id=None) for offset in range(count)])
    assert len(app.letters()) == count
    return app


def command(app: App, folder: Path, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `pipeline dead-letters replay` for all letters, as the leader of a session."""
    words = ["dead-letters", "replay", "--reason", "identity", "--settings", str(settings_file(folder, app.settings))]
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sent_back(app: App) -> list[bytes | None]:
    """Return where the letters that a `read_committed` reader finds in the source come from."""
    found = [dict(record.headers) for record in read_committed(app.settings.source.bootstrap, app.source.name)]
    return [headers["replayed-from"] for headers in found if "replayed-from" in headers]


def assert_once(app: App, count: int) -> None:
    """Demand that each letter is back in the source, and none twice."""
    places = Counter(sent_back(app))
    assert len(places) == count
    assert set(places.values()) == {1}


@pytest.mark.parametrize(
    ("place", "nth", "left"),
    [
        ("amid replay", LETTERS // 2, LETTERS),
        ("before replay is committed", 1, LETTERS),
        ("after replay is committed", 1, LETTERS - PART),
        ("before replay is committed", 2, LETTERS - PART),
        ("after replay is committed", 2, 0),
    ],
)
def test_a_replay_that_is_killed_is_finished_by_the_next_and_sends_nothing_twice(
    broker: Broker, tmp_path: Path, place: str, nth: int, left: int
) -> None:
    app = with_letters(broker, LETTERS)
    faults = Faults(tmp_path)
    faults.arm(place, "kill driver", nth)
    with command(app, tmp_path, faults.environ) as killed:
        assert killed.wait(RUN_SECONDS) == -signal.SIGKILL
    faults.disarm()
    if place == "before replay is committed":
        torn = read_uncommitted(broker.bootstrap, app.source.name)
        whole = read_committed(broker.bootstrap, app.source.name, behind_open=True)
        assert len(torn) > len(whole), "killed in mid transaction"
    with command(app, tmp_path) as again:
        said, errors = again.communicate(timeout=RUN_SECONDS)
    assert again.returncode == 0, errors
    there = f"; {LETTERS - left} are there already" if left < LETTERS else ""
    assert said == f"{left} dead letters sent back to their source partitions{there}\n"
    assert replay(app.settings, list(read_letters(app.settings))) == 0  # and its fence settles the last transaction
    assert_once(app, LETTERS)


def test_of_two_replays_at_once_one_sends_and_the_other_ends_with_one_line(broker: Broker, tmp_path: Path) -> None:
    app = with_letters(broker, 10)
    faults = Faults(tmp_path)
    faults.arm("before replay is committed", "wait")
    with command(app, tmp_path, faults.environ) as first:
        wait_until(faults.struck, RUN_SECONDS, "the first one is in mid transaction")
        assert replay(app.settings, list(read_letters(app.settings))) == 10
        faults.go()
        _, errors = first.communicate(timeout=RUN_SECONDS)
    assert first.returncode == 1
    assert "run it again: nothing is sent twice" in errors
    assert errors.count("\n") == 1, errors
    assert replay(app.settings, list(read_letters(app.settings))) == 0
    assert_once(app, 10)


def test_a_replay_waits_for_the_open_transaction_of_another_producer(broker: Broker) -> None:
    # A read_committed reader sees nothing behind it: all letters would be sent once more.
    app = with_letters(broker, 10)
    other = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("other"), **QUIET})
    other.init_transactions(DEADLINE_SECONDS)
    other.begin_transaction()
    other.produce(app.source.name, b"open", b"k", 0)
    assert other.flush(DEADLINE_SECONDS) == 0
    letters = list(read_letters(app.settings))
    sent: list[int] = []
    thread = threading.Thread(target=lambda: sent.append(replay(app.settings, letters)))
    thread.start()
    thread.join(WATCH_SECONDS)
    assert thread.is_alive()
    other.commit_transaction(DEADLINE_SECONDS)
    thread.join(DEADLINE_SECONDS)
    assert sent == [10]
    assert replay(app.settings, letters) == 0
    assert_once(app, 10)


def test_later_letters_first_and_then_all_with_the_beginning_of_the_source_gone(broker: Broker) -> None:
    app = with_letters(broker, 10)
    letters = list(read_letters(app.settings))
    assert replay(app.settings, letters[5:]) == 5
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    for deleted in admin.delete_records([TopicPartition(app.source.name, 0, 5)]).values():
        deleted.result(DEADLINE_SECONDS)
    assert replay(app.settings, letters) == 5
    assert replay(app.settings, letters) == 0
    assert_once(app, 10)


def test_a_record_that_was_mended_and_sent_back_is_processed_once(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path, partitions=1)
    without_time = b'{"id":"mended","account":"a","amount":1.10,"currency":"EUR"}'
    app.put([(0, 0, "till", without_time)])
    app.pay(0, range(1, 4))
    app.run()
    [letter] = read_letters(app.settings)
    assert (letter.said["reason"], letter.said["detail"]) == ("decode", "field at is missing")

    def receipts() -> Counter[str]:
        return Counter(json.loads(record.value or b"")["id"] for record in app.written(app.settings.output.topics[0]))

    assert receipts() == {"1": 1, "2": 1, "3": 1}
    # The fix: payments without a time are taken from now on.
    *others, time = SCHEMA["fields"]
    fields = [*others, {**time, "type": ["null", time["type"]]}]
    Path(app.settings.codec.schema_file).write_text(json.dumps({**SCHEMA, "fields": fields}), encoding="utf-8")
    assert replay(app.settings, [letter]) == 1
    app.run()
    assert receipts() == {"1": 1, "2": 1, "3": 1, "mended": 1}
    assert len(list(read_letters(app.settings))) == 1
    assert replay(app.settings, [letter]) == 0
    seen = app.run()
    assert receipts()["mended"] == 1
    assert seen.lanes[0].counters.read == 5
