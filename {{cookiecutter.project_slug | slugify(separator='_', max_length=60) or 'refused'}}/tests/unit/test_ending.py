"""How a job tells its end: what failed, also if it is stopped meanwhile; Spark that stops with it is no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError
from tests.support.figures import settings_of

from pipeline.errors import PipelineError, Stopped, Unreachable
from pipeline.flow import shutdown
from pipeline.flow.failures import Failure
from pipeline.flow.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

GONE = Py4JNetworkError("Answer from Java side is empty")
FAILED = RuntimeError("Caused by: java.io.IOException: no")


@pytest.fixture
def job() -> Job:
    """Return a job that had taken its lanes over."""
    job = Job(settings_of(), Mock())
    job._lanes = Mock(recalled={})  # noqa: SLF001  as it is once a batch may come
    return job


@pytest.fixture
def counted(job: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    """End the job by an error; returns whether its lanes were closed as those of one that failed."""

    def end(error: BaseException, meanwhile: Callable[[], None] = lambda: None) -> list[bool]:
        seen: list[bool] = []

        def end_lanes(*_: object, failed: bool, **__: object) -> None:
            seen.append(failed)
            meanwhile()

        monkeypatch.setattr("pipeline.flow.job.end_lanes", end_lanes)
        job._failure = Failure.of(error)  # noqa: SLF001  as a batch notes it
        job._close(Mock())  # noqa: SLF001  and what follows is the end of a run
        job._raise_failure(Mock())  # noqa: SLF001
        return seen

    return end


def test_spark_that_ends_with_a_job_that_was_told_to_is_no_failure(
    job: Job, counted: Callable[..., list[bool]]
) -> None:
    job.stop.set()
    assert counted(GONE) == [False], "then a cluster that does not answer is told"


def test_a_cluster_that_is_away_is_told_of_a_job_that_was_stopped_before_a_batch(
    counted: Callable[..., list[bool]],
) -> None:
    assert counted(Stopped("stopped before the batch began")) == [False]


def test_spark_that_is_gone_before_the_job_is_told_to_stop_is_a_failure(
    job: Job, counted: Callable[..., list[bool]]
) -> None:
    with pytest.raises(PipelineError, match="Spark's Java process is gone"):
        counted(GONE, meanwhile=job.stop.set)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_failed_in_spark_is_told_of_a_job_that_is_stopped_as_well(
    job: Job, counted: Callable[..., list[bool]], when: str
) -> None:
    if when == "before":
        job.stop.set()
    with pytest.raises(PipelineError, match=r"a batch failed: java\.io\.IOException: no"):
        counted(FAILED, meanwhile=job.stop.set)


def test_a_cluster_that_does_not_answer_is_told_where_nothing_else_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> list[str]:
        msg = "no answer"
        raise Unreachable(msg)

    monkeypatch.setattr(shutdown, "close_lanes", unreachable)
    shutdown.end_lanes(settings_of(), 1, workers_may_run=False, failed=True)
    with pytest.raises(Unreachable):
        shutdown.end_lanes(settings_of(), 1, workers_may_run=False, failed=False)


def test_a_lane_that_stays_open_is_told_and_another_writers_partition_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of()
    stays = ["receipts [1]"]
    monkeypatch.setattr(shutdown, "close_lanes", lambda *_, **__: stays)
    shutdown.end_lanes(settings, 1, workers_may_run=False, failed=False)
    assert not caplog.records
    stays.append(f"{settings.lane_topic} [0]")
    shutdown.end_lanes(settings, 1, workers_may_run=False, failed=False)
    assert f"open={settings.lane_topic} [0] could not be fenced" in caplog.text
    assert "receipts" not in caplog.text
