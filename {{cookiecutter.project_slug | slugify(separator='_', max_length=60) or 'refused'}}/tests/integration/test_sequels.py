"""Whole jobs whose batches have sequels: what comes meanwhile is read once and written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.functions import current_timestamp
from tests.support.job import App, new_app, payments

from pipeline.flow import job as flow

if TYPE_CHECKING:
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
    monkeypatch.setattr(flow, "SEQUEL_SECONDS", 1.0)
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
