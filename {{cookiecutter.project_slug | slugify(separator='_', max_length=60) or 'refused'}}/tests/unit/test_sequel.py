"""When a batch has a sequel, where that begins and ends, and what is left to Spark's next batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException
from tests.support.figures import lane
from tests.support.reference import settings_for

from pipeline.errors import PipelineError, SafeStop, Unreachable
from pipeline.flow import going_on, sequel
from pipeline.flow.job import Job
from pipeline.flow.preflight import PartitionsAdded
from pipeline.flow.ranges import Given
from pipeline.flow.sequel import SMALL_OFFSETS, Sequels
from pipeline.lanes.recall import Recalled
from pipeline.lanes.record import encode
from pipeline.observe.progress import Observer
from pipeline.settings import build

if TYPE_CHECKING:
    from pathlib import Path

LANES = {0: 5, 1: 8}
CUT = "the log was cut"


class Plan:
    """Stands for the plan of a batch that Spark has cut at these offsets; the lanes are at its end, or beyond."""

    first, until = {0: 3, 1: 8}, {0: 9, 1: 8}

    def __init__(self, *_: object) -> None:
        """Whatever Spark has planned."""

    @property
    def ranges(self) -> Any:
        """Return what Spark has cut."""
        return self.first, self.until

    def over(self, first: Any, until: Any, *, small: bool) -> Any:
        """Return what was asked for: over which offsets, and whether that is small."""
        return Given((first, until), small)


@pytest.fixture
def sequels(monkeypatch: pytest.MonkeyPatch) -> Sequels:
    """Return those of a stream, behind its first batch."""
    monkeypatch.setattr(sequel, "_Plan", Plan)
    execution = SimpleNamespace(executedPlan=lambda: None, currentBatchId=lambda: 7)
    query = SimpleNamespace(lastExecution=lambda: execution)
    running = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: query))
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[running]))
    made = Sequels(spark, "source", 1_000)
    assert made.begin(7, LANES) is None, "a batch without sequels before it is as Spark planned it, lanes ahead or not"
    return made


def test_a_sequel_has_what_came_behind_the_lanes(sequels: Sequels) -> None:
    assert sequels.rows(LANES, {0: 5, 1: 9}) == Given((LANES, {0: 5, 1: 9}), source=True)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(LANES, id="nothing came"),
        pytest.param({0: 400, 1: 114}, id="more than half of what a batch may have"),
    ],
)
def test_what_is_no_sequel_is_left_to_spark(sequels: Sequels, ends: dict[int, int]) -> None:
    assert sequels.rows(LANES, ends) is None
    assert sequels.begin(7, LANES) is None, "none was written"


def test_many_offsets_are_no_sequel_whatever_a_batch_may_have(sequels: Sequels) -> None:
    made = Sequels(sequels._spark, "source", 10 * SMALL_OFFSETS)  # noqa: SLF001
    made.begin(7, LANES)
    assert made.rows(LANES, {0: 5 + SMALL_OFFSETS, 1: 8}) is not None
    assert made.rows(LANES, {0: 6 + SMALL_OFFSETS, 1: 8}) is None


def test_a_batch_behind_sequels_has_what_the_lanes_have_not_and_ends_no_earlier_than_planned(sequels: Sequels) -> None:
    sequels.rows({0: 3, 1: 8}, LANES | {1: 9})
    assert sequels.begin(7, {0: 5, 1: 9}) == Given(({0: 5, 1: 9}, {0: 9, 1: 9}), source=True)


def test_a_large_batch_behind_sequels_keeps_the_program_that_spark_made(
    sequels: Sequels, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequels.rows(LANES, {0: 5, 1: 9})
    monkeypatch.setattr(Plan, "until", {0: 9 + SMALL_OFFSETS, 1: 8})
    made = sequels.begin(7, {0: 5, 1: 9})
    assert made is not None
    assert made.source is False


def test_a_gap_is_left_as_it_is_for_the_lanes_to_stop_at(sequels: Sequels) -> None:
    sequels.rows(LANES, {0: 5, 1: 9})
    assert sequels.begin(7, {0: 2, 1: 9}) is None
    assert sequels.begin(7, {0: 5}) is None


@pytest.mark.parametrize(
    "other",
    [
        Py4JError("no such method"),
        IllegalArgumentException("requirement failed"),
        TypeError("'JavaPackage' object is not callable"),
        sequel._OtherPlanError("two children"),  # noqa: SLF001
    ],
)
def test_of_a_plan_that_cannot_be_used_again_nothing_is_made(
    sequels: Sequels, monkeypatch: pytest.MonkeyPatch, other: Exception
) -> None:
    def fail(*_: object) -> None:
        raise other

    assert sequels.rows(LANES, {0: 5, 1: 9}) is not None
    monkeypatch.setattr(sequel, "_Plan", fail)
    assert sequels.begin(7, LANES | {1: 9}) is None
    assert sequels.rows(LANES, {0: 5, 1: 9}) is None


def test_rows_that_java_cannot_make_are_left_to_spark(sequels: Sequels, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        msg = "no such method"
        raise Py4JError(msg)

    monkeypatch.setattr(Plan, "over", fail)
    assert sequels.rows(LANES, {0: 5, 1: 9}) is None
    assert sequels.begin(7, LANES) is None


def test_where_more_than_one_stream_runs_nothing_is_taken_for_the_batch() -> None:
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[1, 2]))
    made = Sequels(spark, "source", 1_000)
    assert made.begin(7, LANES) is None
    assert made.rows(LANES, {0: 5, 1: 9}) is None


class Relay:
    """Stands for a job's path and its source: has three sequels, and then none."""

    has_sequels = True

    def __init__(self, failure: PipelineError | None = None, end: int = 9) -> None:
        """With a failure, a look at the source finds that."""
        self.failure, self.end, self.written = failure, end, 0

    def watch(self) -> None:
        """Look at the source."""
        if self.failure is not None:
            raise self.failure

    def ends(self) -> dict[int, int]:
        """Tell how far it can be read."""
        return {0: self.end}

    def write_more(self, _batch: object, _lanes: object, first: dict[int, int], ends: dict[int, int]) -> list[str]:
        """Write a sequel."""
        assert (first, ends) == ({0: 5}, {0: 9})
        self.written += 1
        return ["report"] if self.written <= 3 else []


def gone_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    relay: Any = None,
    stop_at: int = 9,
    **given: Any,
) -> tuple[int, int]:
    """Let a batch go on; return how often a sequel was asked for, and how many were settled."""
    settings = build({**settings_for().model_dump(), "spark": {"trigger_seconds": given.pop("trigger_seconds", 0)}})
    job = Job(settings, Observer(), **given)
    job._lanes = SimpleNamespace(recalled={0: Recalled(encode(lane(0, 5)), 7)})  # type: ignore[assignment]  # noqa: SLF001
    settled: list[Any] = []

    def settle(_: object, reports: Any) -> None:
        settled.append(reports)
        if len(settled) == stop_at:
            job.stop.set()

    monkeypatch.setattr(job, "_settle", settle)
    relay = relay or Relay()
    batch: Any = "batch"
    job._go_on(relay, relay, tmp_path / "stop", batch, 7)  # noqa: SLF001
    return relay.written, len(settled)


def test_sequels_are_written_until_none_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gone_on(tmp_path, monkeypatch) == (4, 3)


def test_no_sequel_is_begun_behind_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gone_on(tmp_path, monkeypatch, stop_at=2) == (2, 2)
    (tmp_path / "stop").touch()
    assert gone_on(tmp_path, monkeypatch) == (0, 0)


def test_sequels_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(going_on, "SECONDS", 0.0)
    assert gone_on(tmp_path, monkeypatch) == (0, 0)


@pytest.mark.parametrize("failure", [Unreachable("no answer"), PartitionsAdded("has 4 partitions")])
def test_what_a_look_at_the_source_finds_is_not_told_of_a_batch_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: PipelineError
) -> None:
    assert gone_on(tmp_path, monkeypatch, Relay(failure)) == (0, 0)


def test_a_batch_at_its_time_and_a_run_that_ends_have_no_sequels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gone_on(tmp_path, monkeypatch, trigger_seconds=1.0) == (0, 0)
    assert gone_on(tmp_path, monkeypatch, until_caught_up=True) == (0, 0)


def test_where_a_path_has_no_sequels_nobody_asks_for_the_ends_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = SimpleNamespace(has_sequels=False, written=0)
    assert gone_on(tmp_path, monkeypatch, relay) == (0, 0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Believe what a leader says at the second time."""
    monkeypatch.setattr(going_on, "CUT_SECONDS", 0.0)
    monkeypatch.setattr(going_on, "LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_log_that_ends_before_its_lanes_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_: object, stand: dict[int, int]) -> None:
        assert stand == {0: 5}
        raise SafeStop(CUT)

    monkeypatch.setattr(going_on, "check_log", cut)
    with pytest.raises(SafeStop, match=CUT):
        gone_on(tmp_path, monkeypatch, Relay(end=4))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("failure", [None, Unreachable("no answer")])
def test_a_log_of_which_that_is_not_proven_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: PipelineError | None
) -> None:
    def unproven(*_: object) -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr(going_on, "check_log", unproven)
    assert gone_on(tmp_path, monkeypatch, Relay(end=4)) == (0, 0)


def test_an_end_that_is_too_low_for_a_moment_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay()
    told = iter([{0: 4}, {0: 4}])
    monkeypatch.setattr(going_on, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(relay, "ends", lambda: next(told, {0: 9}))
    assert gone_on(tmp_path, monkeypatch, relay) == (4, 3)


def test_a_job_that_is_stopped_while_the_source_is_looked_at_has_no_sequel_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay()
    monkeypatch.setattr(relay, "watch", (tmp_path / "stop").touch)
    assert gone_on(tmp_path, monkeypatch, relay) == (0, 0)


def test_spark_is_never_left_farther_behind_than_half_of_what_its_next_batch_may_have(sequels: Sequels) -> None:
    # Planned up to 9 and 8, and 1,000 at most in one.
    assert sequels.rows({0: 300, 1: 200}, {0: 309, 1: 208}) is not None
    assert sequels.rows({0: 300, 1: 200}, {0: 309, 1: 209}) is None


def test_the_plan_of_another_batch_is_not_used(sequels: Sequels) -> None:
    sequels.begin(8, LANES)
    assert sequels.rows(LANES, {0: 5, 1: 9}) is None


def test_a_batch_that_begins_where_the_lanes_stand_is_as_spark_planned_it(sequels: Sequels) -> None:
    assert sequels.rows({0: 2, 1: 8}, {0: 3, 1: 8}) is not None
    assert sequels.begin(7, {0: 3, 1: 8}) is None
    assert sequels.begin(7, {0: 5, 1: 8}) is None, "as one behind no sequels"
