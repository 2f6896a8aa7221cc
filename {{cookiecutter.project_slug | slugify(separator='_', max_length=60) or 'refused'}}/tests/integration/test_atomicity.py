"""Atomicity `batch` on a real broker: a live reader sees all of a batch or nothing, and the rules of the lanes hold."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka.admin import OffsetSpec
from tests.support.job import new_app
from tests.support.kafka import DEADLINE_SECONDS, read_committed
from tests.support.lanes import App, provisioned
from tests.support.rows import columnar
from tests.support.together import LANES, assert_exact, held_at

from pipeline.errors import Replaced
from pipeline.kafka import Fatal
from pipeline.lanes.record import decode
from pipeline.lanes.rows import Chunk
from pipeline.lanes.share import ShareWriter
from pipeline.lanes.takeover import take_over
from pipeline.lanes.together import Together
from pipeline.lanes.topics import Topics
from pipeline.local.gate import Gate
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.job import App as JobApp

    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport
    from pipeline.local.broker import Broker

LOOKS = 20


@pytest.fixture
def app(broker: Broker) -> App:
    """Return a fresh app of three lanes that is written batch by batch."""
    return provisioned(broker.bootstrap, partitions=LANES, delivery={"atomicity": "batch"})


def write(
    app: App, first: int, until: int, recalled: Mapping[int, Recalled] | None = None, run: int = 0
) -> list[LaneReport]:
    """Write the same range of every lane, as the one task of a batch does."""
    tasks = [
        app.task(first, until, partition=lane, run=run, recalled=(recalled or {}).get(lane)) for lane in range(LANES)
    ]
    writer = ShareWriter(tasks, app.settings.batch_id)
    writer.begin()
    for lane in range(LANES):
        writer.gather(lane, Chunk(first, until, [columnar(app.rows(first, until))]))
    writer.write()
    return writer.reports


def stable(app: App, *, committed: bool = True) -> dict[tuple[str, int], int]:
    """Return how far a live reader may read in every output and lane partition; or where the log ends."""
    topics = Topics(app.settings.output_bootstrap)
    found = {}
    for name in (app.out, app.settings.lane_topic):
        partitions = range(topics.one(name, "topic").partitions)
        for partition, offset in topics.offsets(name, partitions, OffsetSpec.latest(), committed=committed).items():
            found[name, partition] = offset
    return found


def test_a_live_reader_sees_nothing_of_a_batch_before_all_of_it_is_decided(app: App, tmp_path: Path) -> None:
    before = stable(app)
    with held_at(write, app, Gate(tmp_path / "gate", "before commit", nth=1)) as process:
        # Every row and every lane record stands in the log; only the decision is missing.
        assert all(stable(app, committed=False)[place] > end for place, end in before.items())
        assert all(stable(app) == before for _ in range(LOOKS))
        assert app_reads(app) == []
    assert process.exitcode == 0
    assert_exact(app, 10)


def app_reads(app: App) -> list[bytes | None]:
    """Return what a `read_committed` reader sees at this moment, without waiting for open transactions."""
    return [record.value for record in read_committed(app.settings.output_bootstrap, app.out, behind_open=True)]


@pytest.mark.fault("K1")
@pytest.mark.parametrize(
    "place",
    [
        *(
            pytest.param(place, marks=pytest.mark.long)
            for place in ("after begin", "amid produce", "after lane record")
        ),
        "before commit",
    ],
)
def test_a_batch_whose_writer_is_killed_before_the_commit_leaves_no_part_of_it(
    app: App, tmp_path: Path, place: str
) -> None:
    with held_at(write, app, Gate(tmp_path / "gate", place, nth=1)) as process:
        process.kill()
        process.join(DEADLINE_SECONDS)
        assert process.exitcode == -signal.SIGKILL
    reports = write(app, 0, 15)
    assert sum(len(report.commits) for report in reports) == 1
    assert_exact(app, 15)


@pytest.mark.fault("K1")
def test_a_batch_whose_writer_is_killed_after_its_commit_is_there_as_a_whole(app: App, tmp_path: Path) -> None:
    with held_at(write, app, Gate(tmp_path / "gate", "after commit", nth=1)) as process:
        process.kill()
        process.join(DEADLINE_SECONDS)
    assert_exact(app, 10)
    write(app, 0, 20)
    assert_exact(app, 20)


def test_the_record_of_every_lane_must_land_where_its_recall_saw_the_end(app: App) -> None:
    write(app, 0, 10)
    old = {lane: app.recalled(lane) for lane in range(LANES)}
    # Another writer, of the same run, moves the last lane alone: the hand-over of that one is out of date.
    app.write(10, 12, partition=LANES - 1)
    [first, *_] = write(app, 10, 20, recalled=old)
    assert set(first.failures) == {"moved"}
    assert_exact(app, 20)


def test_the_newer_run_wins_over_batches_and_over_lanes(app: App) -> None:
    older, _ = take_over(app.settings, app.source)
    newer, handed_over = take_over(app.settings, app.source)
    with pytest.raises(Replaced, match=f"replaced by run {newer}"):
        write(app, 0, 5, run=older)
    with pytest.raises(Replaced, match=f"replaced by run {newer}"):
        app.write(0, 5, partition=1, run=older)
    assert [report.failures for report in write(app, 0, 5, handed_over, newer)] == [{}] * LANES
    assert_exact(app, 5)


@pytest.mark.fault("K1")
@pytest.mark.parametrize("next_atomicity", ["lane", pytest.param("batch", marks=pytest.mark.long)])
def test_a_run_that_takes_over_ends_the_open_batch_of_an_earlier_one(
    app: App, tmp_path: Path, next_atomicity: str
) -> None:
    delivery = app.settings.delivery.model_copy(update={"atomicity": next_atomicity})
    later = replace(app, settings=app.settings.model_copy(update={"delivery": delivery}))
    with held_at(write, app, Gate(tmp_path / "gate", "before commit", nth=1)) as process:
        run, handed_over = take_over(later.settings, app.source)
    assert process.exitcode != 0, "the earlier run was replaced"
    assert {decode(lane.value).next_offset for lane in handed_over.values()} == {0}
    if next_atomicity == "batch":
        write(later, 0, 10, handed_over, run)
    for lane in range(LANES):
        later.write(0, 10, partition=lane, run=run)
    assert_exact(app, 10)


def test_a_lane_that_was_ahead_is_skipped_and_the_others_are_written(app: App) -> None:
    app.write(0, 10, partition=1)
    reports = write(app, 0, 10)
    assert [report.skipped for report in reports] == [0, 10, 0]
    assert_exact(app, 10)


def test_a_commit_whose_answer_was_lost_is_settled_for_all_lanes_at_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Together.commit
    lost: list[bool] = []

    def commit(self: Together) -> None:
        real(self)
        if not lost:
            lost.append(True)
            msg = "no answer"
            raise Fatal(msg)

    monkeypatch.setattr(Together, "commit", commit)
    [first, *_] = write(app, 0, 10)
    assert first.outcomes == {"unknown_committed": 1}
    assert len(first.commits) == 1
    assert_exact(app, 10)


def test_a_whole_job_writes_batch_by_batch_one_transaction_each(broker: Broker, tmp_path: Path) -> None:
    app = new_app(
        broker.bootstrap, tmp_path, delivery={"atomicity": "batch"}, source={"max_offsets_per_trigger": 1_000}
    )
    app.send(2_000)
    with LiveReader(app) as reader:
        seen = app.run()
    commits = [sum(len(report.commits) for report in batch.reports) for batch in seen.batches]
    assert len(commits) > 1
    assert set(commits) == {1}
    app.assert_exact()
    # In each partition, whatever moment it was looked at, the reader stood behind some batch as a whole.
    assert reader.looks > 0
    for place, ends in reader.seen.items():
        whole = ends_of_transactions(app, *place)
        assert ends <= {0, *whole}, place
        assert len(whole) <= len(commits), place


# The job has the cores meanwhile.
PAUSE_SECONDS = 0.05


class LiveReader:
    """Looks all the while how far a `read_committed` reader gets in each output partition."""

    def __init__(self, app: JobApp) -> None:
        """Nothing is read yet."""
        self._settings = app.settings
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.looks = 0
        self.seen: dict[tuple[str, int], set[int]] = defaultdict(set)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def _look(self) -> None:
        topics = Topics(self._settings.output_bootstrap)
        while not self._ended.wait(PAUSE_SECONDS):
            for name in self._settings.output.topics:
                ends = topics.offsets(name, range(self._settings.output.partitions), OffsetSpec.latest())
                for partition, end in ends.items():
                    self.seen[name, partition].add(end)
            self.looks += 1


def ends_of_transactions(app: JobApp, topic: str, partition: int) -> set[int]:
    """Return where each committed transaction of a partition ends: behind its marker, which no reader is shown."""
    offsets = [record.offset for record in app.written(topic) if record.partition == partition]
    after = [*offsets[1:], offsets[-1] + 2] if offsets else []
    return {later for offset, later in zip(offsets, after, strict=True) if later > offset + 1}


@pytest.mark.long
@pytest.mark.fault("K1")
@pytest.mark.parametrize("place", ["after fence", "amid produce", "before commit", "after commit", "after batch"])
def test_a_whole_job_that_is_killed_in_mid_batch_goes_on_exactly(broker: Broker, tmp_path: Path, place: str) -> None:
    app = new_app(broker.bootstrap, tmp_path, delivery={"atomicity": "batch"}, source={"max_offsets_per_trigger": 500})
    app.send(1_500)
    gate = Gate(tmp_path / "gate", place, nth=2)
    with app.start(environ=gate.environ) as job:
        job.wait_for(f"the job is held {place}", gate.holds)
        signal_all(tree(job.pid), signal.SIGKILL)
        job.wait()
    app.run()
    app.assert_exact()
