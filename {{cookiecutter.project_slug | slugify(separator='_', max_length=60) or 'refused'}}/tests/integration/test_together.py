"""Lanes of a task on a real broker: one transaction for all of them, and each keeps the rules of a lane of its own."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hanging import hanging, write_under
from tests.support.job import new_app
from tests.support.kafka import DEADLINE_SECONDS
from tests.support.lanes import App, provisioned
from tests.support.rows import arrow
from tests.support.together import LANES, assert_exact, held_at

from pipeline.errors import Replaced, SafeStop
from pipeline.flow.together import run_together
from pipeline.kafka import Fatal
from pipeline.lanes.handover import settled
from pipeline.lanes.takeover import take_over
from pipeline.lanes.together import Together
from pipeline.local.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.job import Seen

    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport
    from pipeline.local.broker import Broker
    from pipeline.settings import Settings


@pytest.fixture
def app(broker: Broker) -> App:
    """Return a fresh app of three lanes."""
    return provisioned(broker.bootstrap, partitions=LANES)


def write(  # noqa: PLR0913, PLR0917  what a task is told
    app: App,
    first: int,
    until: int,
    recalled: Mapping[int, Recalled] | None = None,
    run: int | None = None,
    share: tuple[int, ...] = (0, 1, 2),
) -> list[LaneReport]:
    """Write the same range of these lanes, as a task that has all of them does."""
    handed_over = recalled or {}
    number = app.run if run is None else run
    tasks = [app.task(first, until, partition=lane, run=number, recalled=handed_over.get(lane)) for lane in share]
    reports = run_together(tasks, iter([arrow(app.rows(first, until), lane) for lane in share]))
    for report in reports:
        report.raise_stop()
    return reports


def told(reports: list[LaneReport]) -> dict[int, Recalled]:
    """Return what the lanes' next tasks are told."""
    return {report.partition: report.recalled for report in reports}


def test_all_lanes_of_a_task_are_one_transaction_and_the_next_is_told_under_which_id(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []
    real = Together.begin

    def begin(self: Together) -> None:
        began.append(self._id)
        real(self)

    monkeypatch.setattr(Together, "begin", begin)
    reports = write(app, 0, 5)
    reports = write(app, 5, 10, told(reports))
    assert began == [app.settings.transactional_id(0)] * 2
    assert [report.by for report in reports] == ["", *[app.settings.transactional_id(0)] * 2]
    assert [len(report.commits) for report in reports] == [1, 0, 0]
    assert [report.failures for report in reports] == [{}] * LANES
    assert_exact(app, 10)


def test_lanes_that_go_from_one_task_to_another_and_back_are_written_exactly(app: App) -> None:
    known = told(write(app, 0, 10))
    known |= told(write(app, 10, 20, known, share=(1, 2)))
    known |= told([app.write(10, 20, partition=0, recalled=known[0])])
    known |= {lane: told([app.write(20, 30, partition=lane, recalled=known[lane])])[lane] for lane in range(LANES)}
    write(app, 30, 40, known)
    assert_exact(app, 40)


def test_a_lane_that_was_ahead_is_skipped_and_the_others_are_written(app: App) -> None:
    app.write(0, 10, partition=1)
    reports = write(app, 0, 10)
    assert [report.skipped for report in reports] == [0, 10, 0]
    assert_exact(app, 10)


def test_a_range_that_all_lanes_have_behind_them_takes_no_transaction(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = told(write(app, 0, 10))

    def begin(_: Together) -> None:
        msg = "there is nothing to be written"
        raise AssertionError(msg)

    monkeypatch.setattr(Together, "begin", begin)
    reports = write(app, 2, 9, known)
    assert [report.skipped for report in reports] == [7] * LANES
    assert told(reports) == known


def test_a_lane_moved_by_another_writer_is_noticed_and_nothing_is_written_twice(app: App) -> None:
    known = told(write(app, 0, 10))
    app.write(10, 12, partition=LANES - 1)
    [first, *_] = write(app, 10, 20, known)
    assert set(first.failures) == {"moved"}
    assert_exact(app, 20)


def test_rows_of_several_transactions_of_one_task_are_each_written_once(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=LANES, transaction={"chunk_rows": 7})
    reports = write(app, 0, 20)
    assert [commit.rows for commit in reports[0].commits] == [7, 7, 6] * LANES
    write(app, 20, 25, told(reports))
    assert_exact(app, 25)


def test_each_lane_is_compared_with_its_own_end(app: App) -> None:
    for first in range(3):
        app.write(first, first + 1, partition=1)
    app.write(0, 1, partition=2)
    ends = [app.recalled(lane).end for lane in range(LANES)]
    assert len(set(ends)) == LANES
    reports = write(app, 0, 10, {lane: app.recalled(lane) for lane in range(LANES)})
    assert [report.failures for report in reports] == [{}] * LANES
    assert [report.end for report in reports] == [end + 2 for end in ends]
    assert_exact(app, 10)


@pytest.fixture
def lost_answer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lose the answer to the next commit, though it is taken; returns the ids under which that happened."""
    real = Together.commit
    lost: list[str] = []

    def commit(self: Together) -> None:
        real(self)
        if not lost:
            lost.append(self._id)
            msg = "no answer"
            raise Fatal(msg)

    monkeypatch.setattr(Together, "commit", commit)
    return lost


def test_a_commit_whose_answer_was_lost_does_not_touch_the_transactions_behind_it(
    broker: Broker, lost_answer: list[str]
) -> None:
    app = provisioned(broker.bootstrap, partitions=LANES, transaction={"chunk_rows": 7})
    [first, *_] = write(app, 0, 20)
    assert lost_answer == [app.settings.transactional_id(0)]
    assert first.outcomes == {"unknown_committed": 1, "committed": LANES * 3 - 1}
    assert [commit.rows for commit in first.commits] == [7, 7, 6] * LANES
    assert_exact(app, 20)


def test_rows_that_a_lane_had_before_a_commit_without_an_answer_are_told_as_skipped(
    app: App, lost_answer: list[str]
) -> None:
    app.write(0, 10, partition=0)
    reports = write(app, 0, 10)
    assert lost_answer
    assert [report.skipped for report in reports] == [10, 0, 0]
    assert_exact(app, 10)


def test_a_zombie_of_the_same_task_is_shut_out_of_all_its_lanes(app: App, tmp_path: Path) -> None:
    with held_at(write, app, Gate(tmp_path / "gate", "before commit", nth=1)) as zombie:
        write(app, 0, 15)
        assert_exact(app, 15)
    assert zombie.exitcode == 0, "it found its range behind the lanes"
    assert_exact(app, 15)


def test_a_run_that_takes_over_ends_what_a_killed_task_left_open_without_waiting_for_its_time_out(
    broker: Broker, tmp_path: Path
) -> None:
    app = provisioned(broker.bootstrap, partitions=LANES, transaction={"timeout_ms": 120_000})
    with held_at(write, app, Gate(tmp_path / "gate", "before commit", nth=1)) as process:
        process.kill()
        process.join(DEADLINE_SECONDS)
    began = time.monotonic()
    run, handed_over = take_over(app.settings, app.source)
    assert time.monotonic() - began < DEADLINE_SECONDS
    write(app, 0, 10, handed_over, run)
    assert_exact(app, 10)


def test_the_newer_run_wins(app: App) -> None:
    older, _ = take_over(app.settings, app.source)
    newer, handed_over = take_over(app.settings, app.source)
    with pytest.raises(Replaced, match=f"replaced by run {newer}"):
        write(app, 0, 5, run=older)
    assert [report.failures for report in write(app, 0, 5, handed_over, newer)] == [{}] * LANES
    assert_exact(app, 5)


def test_the_owed_marker_of_another_id_is_waited_for_and_nothing_is_decided_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.lanes.recall.HANGING_MARGIN_SECONDS", 3.0)
    with hanging(by_lane=7) as hung:
        assert hung.confirmed.by.endswith(".7")
        with pytest.raises(SafeStop, match="a transaction hangs at offset 4"):
            hung.app.write(6, 9, recalled=hung.confirmed)
        assert [stable for stable, _ in hung.ends()] == [4, 4]


def test_what_is_owed_under_one_id_is_completed_before_the_lane_goes_to_another() -> None:
    with hanging(by_lane=7) as hung:
        app, name = hung.app, hung.confirmed.by
        known = {0: hung.confirmed}
        assert settled(app.settings, known, {0: name}) == {}, "the next commit will do it"
        known |= settled(app.settings, known, {0: app.settings.transactional_id(0)})
        assert (known[0].value, known[0].by) == (hung.confirmed.value, name)
        [(stable, end), _] = hung.ends()
        assert stable == end == known[0].end
        assert app.write(6, 9, recalled=known[0]).failures == {}
        # Rows of the output become visible with the next commit under that id in their partition.
        write_under(app, 7, 9, 12)
        assert app.written() == list(range(12))
        assert settled(app.settings, {0: app.recalled()}, {0: name}) == {}, "nothing is owed"


def test_a_lane_that_a_newer_run_has_taken_is_left_to_its_writer_to_find(app: App, tmp_path: Path) -> None:
    known = told(write(app, 0, 10))
    run, _ = take_over(app.settings, app.source)
    rival = replace(app, run=run)
    with held_at(write, rival, Gate(tmp_path / "gate", "before commit", nth=1), until=20):
        assert settled(app.settings, known, {lane: app.settings.transactional_id(lane) for lane in known}) == {}
    with pytest.raises(Replaced, match=f"replaced by run {run}"):
        write(app, 10, 20, known)
    assert_exact(app, 20)


PARTITIONS = 4  # more than Spark has task slots here


def commits_of(seen: Seen) -> list[int]:
    """Return how many transactions each batch had that had records of all lanes."""
    whole = [batch.reports for batch in seen.batches if len(batch.reports) == PARTITIONS]
    return [sum(len(report.commits) for report in reports) for reports in whole]


def test_a_whole_job_of_small_batches_has_one_transaction_for_each_of_its_tasks(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path, partitions=PARTITIONS, source={"max_offsets_per_trigger": 1_000})
    app.send(2_000)
    commits = commits_of(app.run())
    assert set(commits) in ({1}, {2})
    app.assert_exact()


def test_a_whole_job_whose_lanes_change_their_tasks_from_batch_to_batch_is_exact(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(broker.bootstrap, tmp_path, partitions=PARTITIONS, source={"max_offsets_per_trigger": 300})
    app.send(2_000)
    few = cycle((1, 20_000))  # offsets for which a task is made: each lane has its own, or a few tasks have all

    def change(*_: object) -> None:
        monkeypatch.setattr("pipeline.flow.shares.OFFSETS", next(few))

    asked: list[set[str]] = []

    def noted(settings: Settings, recalled: Mapping[int, Recalled], ids: Mapping[int, str], stop: str) -> Any:
        asked.append({ids[lane] for lane in ids if (recalled[lane].by or settings.transactional_id(lane)) != ids[lane]})
        return settled(settings, recalled, ids, stop)

    monkeypatch.setattr("pipeline.flow.batch.settled", noted)
    seen = app.run(change)
    assert len(asked) == len(seen.batches)
    assert all(asked[1:-1]), "lanes change their ids in each batch"
    commits = commits_of(seen)
    assert PARTITIONS in commits
    assert min(commits) < PARTITIONS
    app.assert_exact()
