"""Spark's checkpoint is only a hint: deleted, old, or another app's, it neither loses nor repeats anything."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.job import App, new_app

from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.checkpoint import LOCAL

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.flow.job import Job
    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app with events, and a run behind it."""
    app = new_app(broker.bootstrap, tmp_path)
    app.send(500)
    app.run()
    assert (app.checkpoint / "commits" / "0").is_file()
    return app


@pytest.mark.fault("E2")
def test_without_its_checkpoint_the_job_goes_on_where_the_lanes_stand(app: App) -> None:
    app.send(500, seed=2)
    shutil.rmtree(app.checkpoint)
    again = app.run()
    assert again.skipped == 0, "nothing that was written is read again"
    app.assert_exact()


@pytest.mark.fault("E3")
def test_an_older_checkpoint_brings_rows_again_that_are_skipped(app: App, tmp_path: Path) -> None:
    old = shutil.copytree(app.checkpoint, tmp_path / "old")
    app.send(500, seed=2)
    app.run()
    shutil.rmtree(app.checkpoint)
    shutil.copytree(old, app.checkpoint)
    app.send(500, seed=3)
    again = app.run()
    assert again.skipped > 500, "all of the second run is read again, and none of it written again"
    app.assert_exact()


@pytest.mark.fault("E4")
@pytest.mark.parametrize("more", [0, 100], ids=["at rest", "with more to read"])
def test_a_checkpoint_ahead_of_the_lanes_stops_the_job_also_when_nothing_arrives(app: App, more: int) -> None:
    other = app.another()
    before = app.ends()
    if more:
        other.pay(0, range(more))
    with pytest.raises(SafeStop) as stopped:
        other.run()
    assert str(stopped.value) == (
        f"lane {other.settings.transactional_id(0)} stands at offset 0, but the checkpoint goes on at {before[0]}: "
        f"it is ahead of Kafka; delete its folder ({app.checkpoint}) and start again"
    )
    shutil.rmtree(app.checkpoint)
    other.run()
    other.assert_exact()


@pytest.mark.fault("E7")
def test_another_job_that_plans_in_the_same_checkpoint_is_told_in_one_line(app: App) -> None:
    app.send(500, seed=2)

    def plan_too(_: Job, __: Batch) -> None:
        newest = app.newest("offsets")
        shutil.copy(app.checkpoint / "offsets" / str(newest), app.checkpoint / "offsets" / str(newest + 1))

    small = app.with_settings(source={"max_offsets_per_trigger": 200})
    told = rf"another job writes to the checkpoint folder \({app.checkpoint}\): stop one of them, .*start again"
    with pytest.raises(PipelineError, match=told):
        small.run(plan_too)
    app.run()
    app.assert_exact()


def test_a_checkpoint_whose_records_are_gone_stops_the_job_with_the_remedy(app: App, tmp_path: Path) -> None:
    old = shutil.copytree(app.checkpoint, tmp_path / "old")
    app.send(500, seed=2)
    app.run()
    shutil.rmtree(app.checkpoint)
    shutil.copytree(old, app.checkpoint)
    app.lose(app.ends())
    app.pay(0, range(10))
    with pytest.raises(SafeStop, match=rf"its checkpoint does not fit the log; delete .*\({app.checkpoint}\)"):
        app.run()
    shutil.rmtree(app.checkpoint)
    assert sum(report.commits[0].rows for report in app.run().batches[0].reports) == 10


def test_a_checkpoint_of_another_topic_stops_the_job_with_the_remedy(
    app: App, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = new_app(broker.bootstrap, tmp_path_factory.mktemp("other"), spark={"checkpoint": str(app.checkpoint)})
    other.pay(0, range(10))
    with pytest.raises(SafeStop, match=rf"its checkpoint does not fit the log; delete .*\({app.checkpoint}\)"):
        other.run()


@pytest.fixture
def temporary(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app with events, many small batches of them, and the checkpoint as shipped."""
    app = new_app(broker.bootstrap, tmp_path, spark={"checkpoint": ""}, source={"max_offsets_per_trigger": 100})
    app.send(1_000)
    return app


@pytest.mark.fault("E2")
def test_a_temporary_checkpoint_is_noted_beside_the_batches_and_each_start_goes_on_exactly(
    temporary: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    monkeypatch.setattr("pipeline.flow.job.location", lambda *_: f"{LOCAL}{folder}")
    noted: set[str] = set()

    def then(job: Job, batch: Batch) -> None:
        noted.update(note.name for note in folder.glob("commits/[0-9]*"))
        if batch.id == 4:
            job.stop.set()

    first = temporary.run(then, until_caught_up=False)
    assert len(first.batches) == 5
    assert noted <= {"0"}, "batches are noted in memory, but for the first one"
    shutil.rmtree(folder)
    again = temporary.run()
    assert again.batches, "there was more to do"
    assert again.skipped == 0, "the lanes know what was written, without any note"
    temporary.assert_exact()


@pytest.mark.fault("E2")
def test_a_job_killed_in_its_batches_goes_on_exactly_without_a_checkpoint(temporary: App) -> None:
    with temporary.start() as running:
        running.wait_for_progress(300)
        running.send(signal.SIGKILL)
        running.wait()
    temporary.run()
    temporary.assert_exact()
