"""The lane writer on a real broker: whatever range comes, however often, each row has its effect once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.kafka import read_uncommitted
from tests.support.lanes import App, fill, in_batches, leave_open, provisioned, row, run_task, spy_on_producers

from pipeline.errors import Replaced, SafeStop, Stopped
from pipeline.kafka import Fatal, TransactionFailed
from pipeline.lanes.recall import Recalled, recall
from pipeline.lanes.record import decode, encode
from pipeline.lanes.takeover import fence, write_record
from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.rows import Row

    from pipeline.local.broker import Broker

pytestmark = pytest.mark.container

NO_FAILURES: dict[str, int] = {}


def put_lane(app: App, **changes: Any) -> None:
    """Write another lane record, as another job would."""
    recalled = app.recalled()
    value = encode(replace(decode(recalled.value), **changes))
    write_record(app.settings, fence(app.settings, 0), 0, value, recalled.end)


def test_the_six_steps_come_in_their_order(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"without identity", [])])
    calls: list[str] = []
    spy_on_producers(monkeypatch, calls)

    def spied_recall(*args: Any) -> Recalled:
        calls.append("recall")
        return recall(*args)

    def spied_judge(*args: Any, **kwargs: Any) -> Any:
        from pipeline.lanes.judge import judge  # noqa: PLC0415

        calls.append("judge")
        return judge(*args, **kwargs)

    monkeypatch.setattr("pipeline.lanes.writer.recall", spied_recall)
    monkeypatch.setattr("pipeline.lanes.writer.judge", spied_judge)
    app.write(0, 2, [row(0, [], producer_id=None), *app.rows(1, 2)])
    dead, lanes = app.settings.output.dead_letter_topic, app.settings.lane_topic
    written = ["begin", f"produce {app.out}", f"produce {dead}", f"produce {lanes}", "flush", "commit"]
    assert calls == ["init", "recall", "judge", *written]


def test_the_fence_is_there_before_the_first_row_and_later_chunks_have_one_of_their_own(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 4})
    calls: list[str] = []
    spy_on_producers(monkeypatch, calls)

    def rows() -> Iterator[list[Row]]:
        for first in (0, 4, 8):
            calls.append(f"rows from {first}")
            yield app.rows(first, first + 4)

    run_task(app.task(0, 12), rows())
    assert [call for call in calls if not call.startswith(("produce", "flush"))] == [
        *("init", "rows from 0", "rows from 4", "begin", "commit"),
        *("rows from 8", "init", "begin", "commit", "init", "begin", "commit"),
    ]


def test_a_fence_ahead_of_the_rows_that_fails_is_counted_and_the_chunk_begins_with_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap)
    fenced, calls = Transaction.fence, count()

    def fails_once(self: Transaction) -> None:
        if next(calls) == 0:
            msg = "the coordinator is gone"
            raise Fatal(msg)
        fenced(self)

    monkeypatch.setattr(Transaction, "fence", fails_once)
    report = app.write(0, 10)
    assert (report.failures, report.outcomes) == ({"fatal": 1}, {"failed": 1, "committed": 1})
    assert app.written() == list(range(10))


def test_a_lane_taken_by_another_behind_its_fence_is_written_all_the_same(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)

    def rows() -> Iterator[list[Row]]:
        fence(app.settings, 0)  # by whom the fence ahead of these rows is void
        yield app.rows(0, 10)

    report = run_task(app.task(0, 10), rows())
    assert sum(report.failures.values()) == 1
    assert app.written() == list(range(10))


def test_a_range_that_is_known_to_be_written_has_no_fence(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 10)
    calls: list[str] = []
    recalled = app.recalled()
    spy_on_producers(monkeypatch, calls)
    assert app.write(0, 10, recalled=recalled).skipped == 10
    assert calls == []


def test_a_report_tells_what_the_lane_record_says(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    report = app.write(0, 10)
    recalled = app.recalled()
    assert (report.record, report.end) == (recalled.value, recalled.end)
    assert (len(report.commits), report.skipped, report.failures) == (1, 0, NO_FAILURES)
    assert decode(report.record).counters.verdicts == {"fresh": 10}


def test_a_long_range_is_committed_in_chunks_by_rows(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 4})
    report = run_task(app.task(0, 12), in_batches(app.rows(0, 10), 3))
    assert [lane.next_offset for lane in app.lane_records()] == [0, 4, 8, 12]
    assert [commit.rows for commit in report.commits] == [4, 4, 2]
    assert app.written() == list(range(10))


def test_a_slow_range_is_committed_in_chunks_by_seconds(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_seconds": 1e-9})
    run_task(app.task(0, 6), in_batches(app.rows(0, 6), 2))
    assert [lane.next_offset for lane in app.lane_records()] == [0, 2, 4, 6]
    assert app.written() == list(range(6))


def test_a_chunk_in_mid_range_needs_no_recall_by_reading(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 2})
    handed_over = app.recalled()
    monkeypatch.setattr("pipeline.lanes.writer.recall", lambda *_: pytest.fail("was read"))
    report = app.write(0, 6, recalled=handed_over)
    assert (len(report.commits), report.failures) == (3, NO_FAILURES)


def test_all_outputs_of_a_source_record_stand_in_one_transaction(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 1})
    report = app.write(0, 2, [row(offset, [app.output(offset)] * 3) for offset in range(2)])
    assert [commit.written for commit in report.commits] == [3, 3]
    assert app.written() == [0, 0, 0, 1, 1, 1]


def test_an_empty_range_moves_the_lane_on(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 50, [])
    assert (app.lane().next_offset, app.lane().counters.read) == (50, 0)
    app.write(50, 53)
    assert app.written() == [50, 51, 52]


@pytest.mark.parametrize("handed_over", [True, False], ids=["handed over", "read"])
def test_a_range_wholly_below_the_next_offset_writes_nothing(broker: Broker, *, handed_over: bool) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 20)
    before = app.recalled()
    for first, until in ((0, 7), (5, 12), (19, 20), (0, 20)):
        report = app.write(first, until, recalled=before if handed_over else None)
        assert decode(app.recalled().value).next_offset == 20
        assert app.recalled() == before
        assert (report.skipped, report.commits) == (until - first, [])
        assert (report.record, report.end) == (before.value, before.end)
    assert app.written() == list(range(20))


def test_of_a_range_that_overlaps_only_the_tail_is_written(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % offset, []) for offset in range(20)])
    rows = app.rows(0, 20)
    rows[5], rows[15] = row(5, [], producer_id=None), row(15, [], producer_id=None)
    app.write(0, 10, rows[:10])
    report = app.write(0, 20, rows)
    assert [letter.value for letter in app.letters()] == [b"5", b"15"]
    assert app.written() == [offset for offset in range(20) if offset not in (5, 15)]
    assert report.skipped == 10
    counters = app.lane().counters
    assert (counters.read, counters.written) == (20, 18)
    assert (counters.verdicts, counters.dead_letters) == ({"fresh": 18}, {"identity": 2})


@pytest.mark.parametrize("seed", range(3))
def test_ranges_may_be_cut_otherwise_each_time(broker: Broker, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a schedule, not a secret
    app = provisioned(broker.bootstrap)
    reached = 0
    while reached < 300:
        first, until = chance.randint(0, reached), min(300, chance.randint(reached, reached + 90))
        settings = app.settings.model_copy(
            update={"transaction": app.settings.transaction.model_copy(update={"chunk_rows": chance.randint(5, 70)})}
        )
        task = replace(app.task(first, until), settings=settings)
        run_task(task, in_batches(app.rows(first, until), chance.randint(1, 40)))
        reached = max(reached, until)
    assert app.written() == list(range(300))
    offsets = [lane.next_offset for lane in app.lane_records()]
    assert offsets == sorted(set(offsets))
    assert app.lane().counters.verdicts == {"fresh": 300}


def test_a_range_that_begins_beyond_the_next_offset_stops_the_job(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 10)
    for handed_over in (None, app.recalled()):
        with pytest.raises(SafeStop, match="stands at offset 10, but the batch begins at 12"):
            app.write(12, 20, recalled=handed_over)
    assert app.written() == list(range(10))
    assert app.lane().next_offset == 10


@pytest.mark.parametrize("handed_over", [True, False], ids=["handed over", "read"])
def test_an_old_record_that_looks_like_a_gap_does_not_stop_the_job(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, handed_over: bool
) -> None:
    app = provisioned(broker.bootstrap)
    old = app.recalled()
    app.write(0, 10)
    answers = [] if handed_over else [old]
    monkeypatch.setattr("pipeline.lanes.writer.recall", lambda *args: answers.pop() if answers else recall(*args))
    report = app.write(10, 20, recalled=old if handed_over else None)
    assert report.failures == {"moved": 1}
    assert app.written() == list(range(20))


def test_a_lane_of_a_newer_run_ends_the_job(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    handed_over = app.recalled()
    put_lane(app, run=3)
    for recalled in (None, handed_over):
        with pytest.raises(Replaced, match="replaced by run 3"):
            app.write(0, 5, recalled=recalled)
    assert app.written() == []


def test_a_record_of_an_earlier_run_is_out_of_date_and_read_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap)
    old = app.recalled()
    put_lane(app, run=3)
    report = app.write(0, 5, run=3, recalled=old)
    assert (report.failures, app.written()) == ({"moved": 1}, list(range(5)))
    monkeypatch.setattr("pipeline.kafka.GIVE_UP_SECONDS", 0.1)
    with pytest.raises(TransactionFailed, match="read a record of run 3, but run 4 has written since"):
        app.write(5, 10, run=4)


def test_a_lane_of_a_topic_that_was_created_anew_stops_the_job(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    with pytest.raises(SafeStop, match=f"source topic {app.source.name} was deleted and created anew"):
        app.write(0, 5, topic_id=(1, 2))
    assert app.written() == []


@pytest.mark.parametrize("chunks_since", [1, 3])
def test_an_out_of_date_hand_over_is_noticed_and_settled_by_reading(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, chunks_since: int
) -> None:
    app = provisioned(broker.bootstrap)
    monkeypatch.setattr("pipeline.kafka.GIVE_UP_SECONDS", 5.0)
    old = app.recalled()
    for number in range(chunks_since):
        app.write(number * 10, number * 10 + 10)
    until = chunks_since * 10 + 5
    report = app.write(0, until, recalled=old)
    assert app.written() == list(range(until))
    assert report.failures == {"moved": 1}
    assert app.lane().counters.verdicts == {"fresh": until}


@pytest.mark.parametrize("wrong", [-2, -1])
def test_a_hand_over_with_a_wrong_end_is_noticed_and_settled_by_reading(broker: Broker, wrong: int) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 10)
    right = app.recalled()
    report = app.write(10, 20, recalled=Recalled(right.value, right.end + wrong))
    assert report.failures == {"moved": 1}
    assert app.written() == list(range(20))


@pytest.mark.parametrize("lost", [2, 3])
def test_a_lane_that_ends_before_what_was_handed_over_stops_the_job(broker: Broker, lost: int) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 10)
    right = app.recalled()
    with pytest.raises(SafeStop, match=f"expected {right.end + lost}: the lane topic lost what was committed"):
        app.write(10, 20, recalled=Recalled(right.value, right.end + lost))
    assert app.written() == list(range(10))


def test_a_record_that_an_aborted_writer_left_behind_the_hand_over_is_no_harm(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    handed_over = app.recalled()
    leave_open(app)
    report = app.write(0, 10, recalled=handed_over)
    assert (report.failures, app.written()) == ({"moved": 1}, list(range(10)))


def test_attempts_that_did_not_commit_are_counted_nowhere(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    right = app.recalled()
    report = app.write(0, 10, recalled=Recalled(right.value, right.end - 1))
    assert report.failures == {"moved": 1}
    counters = app.lane().counters
    assert (counters.read, counters.written, counters.verdicts) == (10, 10, {"fresh": 10})
    assert [(commit.rows, commit.written) for commit in report.commits] == [(10, 10)]


def test_a_ledger_too_large_for_its_topic_stops_the_job_before_anything_is_written(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    rows = [row(offset, [app.output(offset)], seq=2 * offset) for offset in range(3_000)]  # a range for each id
    end = app.recalled().end
    with pytest.raises(SafeStop, match=f"bytes .* topic {app.settings.lane_topic}.*raise its max.message.bytes"):
        app.write(0, 3_000, rows, max_record_bytes=5_000)
    assert read_uncommitted(broker.bootstrap, app.out) == []
    assert app.recalled().end == end
    app.write(0, 3_000, rows)
    assert app.written() == list(range(3_000))


@pytest.mark.parametrize("kind", ["unknown", "the source", "the lanes", "none"])
def test_an_output_to_a_topic_that_is_not_in_the_settings_stops_the_job(broker: Broker, kind: str) -> None:
    app = provisioned(broker.bootstrap)
    topics: dict[str, Any] = {"unknown": "x", "the source": app.source.name, "the lanes": app.settings.lane_topic}
    output: Any = (topics.get(kind), b"key", b"value", None)
    end = app.recalled().end
    with pytest.raises(SafeStop, match=r"which is not in output\.topics"):
        app.write(0, 2, [*app.rows(0, 1), row(1, [output])])
    assert read_uncommitted(broker.bootstrap, app.out) == []
    assert app.recalled().end == end


def test_a_writer_that_is_told_to_stop_ends_between_two_chunks(broker: Broker, tmp_path: Path) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 5})
    stop = tmp_path / "stop"

    def batches() -> Any:
        yield app.rows(0, 5)
        yield app.rows(5, 11)
        stop.touch()
        yield app.rows(11, 20)

    with pytest.raises(Stopped, match="before offset 10"):
        run_task(app.task(0, 20, stop_file=str(stop)), batches())
    assert (app.written(), app.lane().next_offset) == (list(range(10)), 10)
