"""The shuffled path on a real broker: windows are exact through kills, and what a token forbids stops with one line."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f
from tests.support.armed import Faults
from tests.support.kafka import read_committed
from tests.support.windowed import KAFKA_MS, MINUTE, WindowedApp, copied, scoring, tumbling, windowed_app

from pipeline.errors import PipelineError, SafeStop
from pipeline.lanes.provision import provision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from pipeline.flow.job import Job
    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch
    from pipeline.settings import Settings


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> WindowedApp:
    """Return a fresh app with windows of one minute, and a watermark a minute behind."""
    return windowed_app(broker.bootstrap, tmp_path)


def minutes(first: int, until: int) -> Iterator[tuple[int, str, str, int]]:
    """Yield three payments of each of four accounts in each minute, over both partitions."""
    for minute in range(first, until):
        for number in range(12):
            at = minute * MINUTE + 1_000 * number + 1  # the watermark begins at 1970: what happened then is late
            yield number % 2, f"{minute}-{number}", f"account-{number % 4}", at


@pytest.mark.long
@pytest.mark.fault("W8")
def test_windows_are_exact_through_a_kill_between_the_commits_of_two_lanes(app: WindowedApp, tmp_path: Path) -> None:
    app.pay_at(minutes(0, 5))
    app.go()
    app.pay_at(minutes(5, 10))
    faults = Faults(tmp_path)
    # The first batch reads the events, the next one writes what they made due. One task at a time: one of its lanes has
    # committed when the other one begins.
    faults.arm("before fence", "kill job", nth=4)
    with app.with_settings(spark={"master": "local[1,4]"}).start(tumbling, faults.environ) as running:
        running.wait()
    assert faults.struck() is not None
    seen = app.go()
    app.assert_exact()
    commits = [len(report.commits) for report in seen.batches[0].reports]
    assert sorted(commits) == [0, 1], "one lane had the batch, and skipped it; the other had not"
    counted = Counter((value["account"], value["start"]) for value in app.values())
    assert set(counted.values()) == {1}
    assert len(counted) == 4 * 8  # minutes 0 to 7 are due: the last event is in minute 9, the watermark in minute 8
    assert {value["payments"] for value in app.values()} == {3}


def under_one_key(settings: Settings) -> Callable[[DataFrame], DataFrame]:
    """Return the same windows with the same state, and all results under one key, hence in one lane."""

    def windows(events: DataFrame) -> DataFrame:
        outputs = f.transform("outputs", lambda one: one.withField("key", f.lit(b"one")))
        return tumbling(settings)(events).withColumn("outputs", outputs)

    return windows


@pytest.mark.long
@pytest.mark.fault("W14")
def test_a_batch_that_one_lane_has_is_finished_as_it_was_begun_or_not_at_all(app: WindowedApp, tmp_path: Path) -> None:
    app.pay_at(minutes(0, 5))
    app.go()
    app.pay_at(minutes(5, 10))
    faults = Faults(tmp_path)
    faults.arm("before fence", "kill job", nth=4)  # as above: one lane has the batch, the other has not
    with app.with_settings(spark={"master": "local[1,4]"}).start(tumbling, faults.environ) as running:
        running.wait()
    newest = tmp_path / "newest"
    shutil.copytree(app.checkpoint, newest)
    app.pay_at(minutes(10, 11))
    before = app.lanes()
    batches = sorted(lane.token.batch_id for lane in before if lane.token is not None)
    assert batches == [batches[0], batches[0] + 1]
    # The plan of the batch is gone, and Spark cuts it anew: the lane that has not got it yet must not take it either.
    for name in (f"{batches[1]}", f".{batches[1]}.crc"):
        (app.checkpoint / "offsets" / name).unlink()
    assert "the replay diverges" in stopped(app)
    replaced(app, newest)
    # Neither from other code, nor by other settings.
    line = f"finish batch {batches[1]} with the"
    assert f"{line} code that began it" in stopped(replace(app, function=under_one_key))
    assert f"{line} settings that began it" in stopped(app.with_settings(windows={"ahead_seconds": 7}))
    assert [replace(lane, run=0) for lane in app.lanes()] == [replace(lane, run=0) for lane in before]
    app.go()
    app.assert_exact()


def recounted(app: WindowedApp) -> Counter[tuple[str, int]]:
    """Count the source's payments of each account and minute, without Spark; late ones too."""
    payments = [json.loads(one.value or b"") for one in read_committed(app.bootstrap, app.topic)]
    return Counter((one["account"], one["at"] // MINUTE) for one in payments)


def reported(app: WindowedApp) -> Counter[tuple[str, int]]:
    """Count what the results say: corrections are added."""
    found: Counter[tuple[str, int]] = Counter()
    for one in app.values():
        minute = int(datetime.fromisoformat(one["start"]).timestamp() * 1000) // MINUTE
        found[one["account"], minute] += one["payments"]
    return found


@pytest.mark.fault("W13")
@pytest.mark.parametrize(
    "late", ["correct", pytest.param("aside", marks=pytest.mark.long), pytest.param("drop", marks=pytest.mark.long)]
)
def test_late_events_are_never_dropped_in_silence(broker: Broker, tmp_path: Path, late: str) -> None:
    app = windowed_app(broker.bootstrap, tmp_path, windows={"late": late, "ahead_seconds": 60})
    app.pay_at(minutes(0, 10))
    # The first watermark of all is that of 1970.
    app.pay_at([(1, "late-0", "account-2", 0)])
    app.go()
    watermark = 9 * MINUTE + 11_001 - MINUTE
    # At the watermark is late, one millisecond behind it is not; the minute of both is still open.
    app.pay_at([(0, "late-1", "account-0", MINUTE), (1, "late-2", "account-1", 5 * MINUTE)])
    app.pay_at([(0, "late-3", "account-0", watermark), (0, "on-time", "account-0", watermark + 1)])
    app.pay_at([(1, "ahead", "account-3", KAFKA_MS + MINUTE + 1)])
    app.pay_at(minutes(10, 12))
    app.go()
    assert app.late_ones() == 4
    everything = recounted(app)
    [ahead] = [one for one in everything if one[1] > 100]
    due = {one: count for one, count in everything.items() if one[1] < 10}
    if late == "correct":
        assert reported(app) == due
        corrected = [
            one for one in app.written(app.settings.output.topics[0]) if ("correction", b"late") in one.headers
        ]
        assert len(corrected) == 4
    else:
        for minute, account in ((0, 2), (1, 0), (5, 1), (8, 0)):
            due[f"account-{account}", minute] -= 1
        assert reported(app) == due
    if late == "drop":
        assert app.late() == []
        with pytest.raises(PipelineError, match="nothing says which"):
            app.audit()
        return
    assert app.late() == [(0, 60), (0, 61), (1, 60), (1, 61)]
    app.assert_exact()
    [letter] = app.written(app.settings.output.dead_letter_topic)
    assert dict(letter.headers)["dead-letter-reason"] == b"time"
    assert ahead == ("account-3", (KAFKA_MS + MINUTE + 1) // MINUTE)


def stopped(app: WindowedApp) -> str:
    """Run a job that must stop to protect the data; returns its line."""
    with pytest.raises(SafeStop) as stop:
        app.go()
    assert "\n" not in str(stop.value)
    return str(stop.value)


def end(job: Job, _: Batch) -> None:
    """End the job after the batch in hand."""
    job.stop.set()


@pytest.mark.long
@pytest.mark.fault("W14")
def test_a_checkpoint_that_is_not_of_one_moment_with_the_lanes_stops_the_job(app: WindowedApp, tmp_path: Path) -> None:
    app.pay_at(minutes(0, 3))
    app.go()
    older, newest = tmp_path / "older", tmp_path / "newest"
    shutil.copytree(app.checkpoint, older)
    app.pay_at(minutes(3, 6))
    app.go(end)
    before = app.lanes()
    shutil.copytree(app.checkpoint, newest)
    replaced(app, older)
    app.pay_at(minutes(6, 9))
    assert "the replay diverges, the checkpoint was restored from an older copy" in stopped(app)
    shutil.rmtree(app.checkpoint)
    assert "(none: it is empty): the state is in the checkpoint alone" in stopped(app)
    lanes_path = app.with_settings(flow={"path": "lanes"})
    with pytest.raises(SafeStop, match="was written on the shuffled path"):
        lanes_path.run(transform=copied(app.settings))
    # Nothing was written by all of these, and the right checkpoint goes on.
    assert [replace(lane, run=0) for lane in app.lanes()] == [replace(lane, run=0) for lane in before]
    replaced(app, newest)
    app.go()
    app.assert_exact()
    app.grow(3)
    with pytest.raises(SafeStop, match="has run with 2 lanes: results would change their lanes"):
        provision(app.settings, lambda _: None)
    assert "3 partitions, but only 2 lanes: with more of them results would change their lanes" in stopped(app)


@pytest.mark.long
@pytest.mark.fault("W14")
def test_state_that_cannot_be_read_stops_the_job_with_one_line(app: WindowedApp, tmp_path: Path) -> None:
    app.pay_at(minutes(0, 3))
    app.go()
    sound = tmp_path / "sound"
    shutil.copytree(app.checkpoint, sound)
    app.pay_at(minutes(3, 6))
    for spoil in (Path.unlink, cut_short):
        for changes in (app.checkpoint / "state").rglob("*.changelog"):
            spoil(changes)
        line = stopped(app)
        assert "/state is damaged (" in line
        assert "restore it from a copy, or give the job another app.id" in line
        replaced(app, sound)
    app.go()
    app.assert_exact()
    # Another function than the one whose state is kept: not to be mistaken for damage.
    app.pay_at(minutes(6, 9))
    assert "windows.py has changed what it keeps" in stopped(replace(app, function=scoring))


def cut_short(file: Path) -> None:
    """Keep the first half of a file, as a disk does that was full; what Hadoop knows of its content goes with it."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    file.with_name(f".{file.name}.crc").unlink()


def replaced(app: WindowedApp, copy: Path) -> None:
    """Put a copy in place of the checkpoint."""
    shutil.rmtree(app.checkpoint, ignore_errors=True)
    shutil.copytree(copy, app.checkpoint)


@pytest.mark.long
@pytest.mark.fault("W15")
@pytest.mark.parametrize("form", ["json", "avro"])
def test_the_fraud_scoring_example_is_exact(broker: Broker, tmp_path: Path, form: str) -> None:
    app = windowed_app(broker.bootstrap, tmp_path, function=scoring, codec={"input": form, "output": form})
    chance = random.Random(3)  # noqa: S311  data, not a secret
    for part in range(2):
        times = [1_000 * chance.randrange(4_000 * part, 4_000 * (part + 1)) for _ in range(300)]
        app.pay_at(
            (number % 2, f"{part}-{number}", f"account-{chance.randrange(20)}", at) for number, at in enumerate(times)
        )
        app.go()
    app.assert_exact()
    kinds = Counter(one["kind"] for one in app.values())
    assert min(kinds[kind] for kind in ("tumbling", "sliding", "session")) > 50
    verdicts = Counter(one["id"] for one in app.values(1))
    assert set(verdicts.values()) == {1}
    assert len(verdicts) + len(app.late()) > 500


@pytest.mark.long
@pytest.mark.fault("W15")
def test_a_function_that_reads_the_events_twice_is_refused(app: WindowedApp) -> None:
    def twice(settings: Settings) -> Callable[[DataFrame], DataFrame]:
        return lambda events: tumbling(settings)(events).unionAll(tumbling(settings)(events))

    assert "reads the events 2 times" in stopped(replace(app, function=twice))
