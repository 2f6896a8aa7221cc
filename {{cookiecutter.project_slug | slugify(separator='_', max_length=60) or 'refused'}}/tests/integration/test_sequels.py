"""Whole jobs whose batches have sequels: what comes meanwhile is read once and written once."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import current_timestamp, udf
from tests.support.armed import Faults
from tests.support.job import App, new_app, payments
from tests.support.kafka import wait_until
from tests.support.running import JOB_SECONDS

from pipeline.flow import going_on, sequel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from pipeline.flow.job import Job
    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch

# More batches and sequels than any of these tests needs, if all is well.
ENOUGH = 60


@pytest.fixture
def app(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """Return a fresh app with some payments, whose batches have sequels for a second."""
    monkeypatch.setattr(going_on, "SECONDS", 1.0)
    app = new_app(broker.bootstrap, tmp_path)
    app.send(300)
    return app


class Feeder:
    """Sends some payments behind each batch, so that there is a sequel; ends the job when it has seen enough."""

    def __init__(self, app: App, behind: int) -> None:
        """Enough are so many batches of Spark that had sequels, each, and one more."""
        self.app, self.behind = app, behind
        self.ids: list[int] = []

    def __call__(self, job: Job, batch: Batch) -> None:
        """Take note of a batch or sequel."""
        self.ids.append(batch.id)
        if len(self.with_sequels()) > self.behind or len(self.ids) == ENOUGH:
            job.stop.set()
        else:
            self.app.pay(len(self.ids) % 2, range(20), f"more-{len(self.ids)}")

    def with_sequels(self) -> set[int]:
        """Return Spark's batches that had some."""
        return {number for number in self.ids if self.ids.count(number) > 1}


def test_what_comes_meanwhile_is_written_once_and_no_row_is_read_again(app: App) -> None:
    feeder = Feeder(app, behind=2)
    seen = app.run(feeder, until_caught_up=False)
    assert len(feeder.with_sequels()) > 2, feeder.ids
    assert len(feeder.ids) < ENOUGH
    assert seen.skipped == 0, "a batch behind sequels has only what the lanes have not"
    app.run()
    app.assert_exact()


def test_a_run_behind_one_with_sequels_goes_on_where_the_lanes_stand(app: App) -> None:
    app.run(Feeder(app, behind=1), until_caught_up=False)
    again = Feeder(app, behind=1)
    app.run(again, until_caught_up=False)
    assert again.with_sequels()
    app.run()
    app.assert_exact()


def test_a_function_that_asks_for_the_time_is_given_that_of_a_batch_of_its_own(app: App) -> None:
    def transform(events: DataFrame) -> DataFrame:
        return payments(app.settings)(events.withColumn("read_at", current_timestamp()))

    feeder = Feeder(app, behind=ENOUGH)

    def five(job: Job, batch: Batch) -> None:
        feeder(job, batch)
        if len(feeder.ids) == 5:
            job.stop.set()

    app.run(five, until_caught_up=False, transform=transform)
    assert not feeder.with_sequels()
    app.run()
    app.assert_exact()


def test_a_function_with_a_step_in_python_has_sequels(app: App) -> None:
    def transform(events: DataFrame) -> DataFrame:
        return payments(app.settings)(events.withColumn("account", udf(lambda account: account)("account")))

    feeder = Feeder(app, behind=2)
    seen = app.run(feeder, until_caught_up=False, transform=transform)
    assert len(feeder.with_sequels()) > 2, feeder.ids
    assert seen.skipped == 0
    app.run()
    app.assert_exact()


def test_a_sequel_of_atomicity_batch_is_one_transaction(app: App) -> None:
    app = app.with_settings(delivery={"atomicity": "batch"})
    feeder = Feeder(app, behind=2)
    seen = app.run(feeder, until_caught_up=False)
    assert len(feeder.with_sequels()) > 2, feeder.ids
    for batch in seen.batches:
        assert sum(len(report.commits) for report in batch.reports) == 1, batch.id
    app.run()
    app.assert_exact()


def test_a_large_batch_behind_sequels_goes_on_where_the_lanes_stand(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many as that are cut by Spark, and made by the program that it has written.
    monkeypatch.setattr(sequel, "SMALL_OFFSETS", 30)
    feeder = Feeder(app, behind=1)

    def then(job: Job, batch: Batch) -> None:
        feeder(job, batch)
        if len(feeder.with_sequels()) == 1 and feeder.ids.count(batch.id) > 1:
            app.pay(0, range(200), f"many-{len(feeder.ids)}")

    seen = app.run(then, until_caught_up=False)
    assert len(feeder.with_sequels()) > 1, feeder.ids
    assert seen.skipped == 0
    app.run()
    app.assert_exact()


@pytest.mark.parametrize(
    ("place", "action"),
    [
        ("before sequel", "kill job"),
        pytest.param("before commit", "kill job", marks=pytest.mark.long),
        pytest.param("after commit", "kill job", marks=pytest.mark.long),
        pytest.param("after commit", "kill worker", marks=pytest.mark.long),
        pytest.param("after batch", "kill driver", marks=pytest.mark.long),
    ],
)
def test_a_job_that_is_killed_amid_sequels_goes_on_exactly(app: App, tmp_path: Path, place: str, action: str) -> None:
    faults = Faults(tmp_path)
    with app.start(payments, faults.environ) as running:
        numbers = count()

        def feed_until(done: Callable[[], object], what: str) -> None:
            def fed() -> object:
                number = next(numbers)
                app.pay(number % 2, range(5), f"fed-{number}")
                return done()

            wait_until(fed, JOB_SECONDS, what)

        feed_until(lambda: had_sequels(running.log), "a batch has sequels")
        faults.arm(place, action, nth=3)
        feed_until(lambda: faults.struck() is not None, "it is killed")
        if action == "kill worker":
            running.wait_for("it has caught up", lambda: app.lag() == 0)
        else:
            wait_until(lambda: running.poll() is not None, JOB_SECONDS, "it has ended")
    app.run()
    app.assert_exact()


def had_sequels(log: str) -> bool:
    """Tell whether a job has written more than one line with the number of one batch, and another one behind it."""
    lines = Counter(re.findall(r" batch=(\d+) ", log))
    return max(lines.values(), default=0) > 2
