"""`pipeline replay`: a stretch of the log once more, exactly, into other topics, without touching the live app."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import OffsetSpec
from tests.support.job import App, new_app, payments, spark_kept
from tests.support.kafka import fresh, read_committed, wait_until
from tests.support.program import settings_file
from tests.support.running import JOB_SECONDS, ROOT

from pipeline.errors import BadSettings, SafeStop
from pipeline.flow.replay import Replay
from pipeline.flow.stretch import Stretch, stretch_of
from pipeline.lanes.provision import provision
from pipeline.lanes.topics import Topics
from pipeline.local.gate import Gate
from pipeline.local.processes import signal_all, tree
from pipeline.observe.progress import Observer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka import Record

    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return a live app that has caught up; its batches are small."""
    app = new_app(broker.bootstrap, tmp_path, source={"max_offsets_per_trigger": 500})
    app.send(1_000)
    app.run()
    return app


@pytest.fixture(scope="module")
def unread(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> App:
    """Return an app that never ran, on a source with records."""
    app = new_app(broker.bootstrap, tmp_path_factory.mktemp("unread"), source={"max_offsets_per_trigger": 100})
    app.send(300)
    return app


def new_names(app: App) -> list[str]:
    """Return `--into` for each output of the app."""
    return [f"{topic}={fresh('again')}" for topic in app.settings.output.topics]


def replayed(app: App, stretch: Stretch, observer: Observer | None = None) -> App:
    """Replay in this process to the end; returns the app of the replay."""
    provision(stretch.settings, lambda _: None)
    with spark_kept():
        assert Replay(stretch, observer or Observer(), payments(app.settings)).run() == 0
    return App(stretch.settings, app.folder)


class Told(Observer):
    """Keeps what a replay tells: lines for people, and where the lanes stood after each batch."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self.lines: list[str] = []
        self.offsets: list[int] = []

    def on_batch(self, batch: Batch) -> None:
        """Note the sum of next offsets."""
        super().on_batch(batch)
        self.offsets.append(sum(lane.next_offset for lane in batch.lanes.values()))

    def say(self, line: str) -> None:
        """Note the line."""
        self.lines.append(line)


def ends(app: App) -> dict[str, dict[int, int]]:
    """Return where all topics end that the live app writes."""
    topics = Topics(app.bootstrap)
    settings = app.settings
    names = (settings.lane_topic, settings.output.dead_letter_topic, *settings.output.topics)
    return {
        name: topics.offsets(name, range(found.partitions), OffsetSpec.latest(), committed=False)
        for name, found in topics.describe(names).items()
    }


def contents(records: list[Record]) -> Counter[tuple[bytes | None, bytes | None]]:
    """Return keys and values with their counts."""
    return Counter((record.key, record.value) for record in records)


@pytest.mark.long
@pytest.mark.fault("K2")
def test_a_replay_that_is_killed_is_finished_by_the_same_command_and_the_live_app_is_not_touched(
    app: App, tmp_path: Path
) -> None:
    before = ends(app)
    into = new_names(app)
    options = [part for name in into for part in ("--into", name)]
    gate = Gate(tmp_path / "gate", "before commit", nth=3)
    path = settings_file(tmp_path, app.settings)
    command = [sys.executable, "-m", "tests.support.run_replay", str(path), *options]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with (tmp_path / "log").open("wb") as log:
        killed = subprocess.Popen(
            command, env={**environ, **gate.environ}, stdout=log, stderr=log, start_new_session=True, cwd=ROOT
        )
        wait_until(lambda: gate.holds() or killed.poll() is not None, JOB_SECONDS, "a transaction of it is open")
        signal_all(tree(killed.pid), signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL, (tmp_path / "log").read_text(encoding="utf-8")
    again = replayed(app, stretch_of(app.settings, "earliest", "latest", into))
    for old, new in zip(app.settings.output.topics, again.settings.output.topics, strict=True):
        assert contents(again.written(new)) == contents(app.written(old))
    again.assert_exact()
    assert ends(app) == before
    app.assert_exact()


def test_a_stretch_by_offsets_is_replayed_and_not_a_record_more(app: App) -> None:
    held_back = app.with_settings(source={"max_offsets_per_trigger": 250})
    stretch = stretch_of(held_back.settings, "100", "350", new_names(app))
    told = Told()
    again = replayed(app, stretch, told)
    # Back-pressure: 500 offsets in batches of 250, and what is done is said before each of them and at the end.
    assert told.offsets == [450, 700]
    assert told.lines == [f"replayed={done} of=500 offsets" for done in (0, 250, 500)]
    result = again.audit()
    assert result.exact, result.remarks()
    assert 0 < result.read < 500
    assert dict(stretch.until) == {0: 350, 1: 350}
    # Taken up again, it has nothing left to do; told to begin elsewhere, it refuses.
    assert stretch.left(dict(stretch.until)) == 0
    other = stretch_of(app.settings, "101", "350", [f"{old}={new}" for old, new in stretch.into.items()])
    with spark_kept(), pytest.raises(SafeStop, match="began at offset 100 of partition 0, not at 101"):
        Replay(other, Observer(), payments(app.settings)).run()


def test_a_stretch_by_time_begins_at_the_first_record_of_that_time(unread: App) -> None:
    between = datetime.now(UTC)
    unread.send(200, seed=7)
    stretch = stretch_of(unread.settings, between.isoformat(), "latest", [fresh("again")])
    records = read_committed(unread.bootstrap, unread.topic)
    since = [record for record in records if record.timestamp >= int(between.timestamp() * 1000)]
    assert 0 < len(since) < len(records)
    assert [record for record in records if record.offset >= stretch.first[record.partition]] == since
    assert stretch.settings.source.start.startswith("offsets:")


def test_back_pressure_settings_bound_each_batch(unread: App) -> None:
    stretch = stretch_of(unread.settings, "earliest", "latest", [fresh("again")])
    ranges = stretch.next_ranges(stretch.first)
    assert 0 < sum(until - first for first, until in ranges.values()) <= unread.settings.source.max_offsets_per_trigger


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_a_replay_is_exactly_once_whatever_the_live_app_is(unread: App, semantics: str) -> None:
    weaker = unread.with_settings(delivery={"semantics": semantics})
    stretch = stretch_of(weaker.settings, "earliest", "latest", [fresh("again")])
    assert stretch.live.delivery.semantics == semantics
    assert stretch.settings.delivery.semantics == "exactly-once"


@pytest.mark.parametrize("wrong", ["live output", "two for all", "unknown", "nothing there", "no zone", "live app"])
def test_what_would_touch_the_live_app_or_means_nothing_is_refused_before_anything_is_made(
    unread: App, wrong: str
) -> None:
    receipts, _ = unread.settings.output.topics
    start, end, into, name = {
        "live output": ("earliest", "latest", [receipts], ""),
        "two for all": ("earliest", "latest", ["a", "b"], ""),
        "unknown": ("earliest", "latest", ["other=a", "b"], ""),
        "nothing there": ("latest", "latest", ["a"], ""),
        "no zone": ("2026-01-31T08:00:00", "latest", ["a"], ""),
        "live app": ("earliest", "latest", ["a"], unread.settings.app.id),
    }[wrong]
    with pytest.raises(BadSettings):
        stretch_of(unread.settings, start, end, into, name)
