"""The writer of the shuffled path on a real broker, without Spark: its token is as good as an offset."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.kafka import DEADLINE_SECONDS, read_committed, wait_until
from tests.support.lanes import App, fill, processes, provisioned, spy_on_producers

from pipeline.errors import SafeStop, Stopped
from pipeline.lanes import shuffled
from pipeline.lanes.letters import dead_letters
from pipeline.lanes.provision import provision
from pipeline.lanes.shuffled import Part, ShuffledWriter
from pipeline.lanes.token import Planned
from pipeline.lanes.transaction import Transaction
from pipeline.local.gate import Gate

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.lanes.report import LaneReport
    from pipeline.local.broker import Broker

STEPS = ["fence", "begin", "send_all", "put_lane_record", "flush_and_compare", "commit"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up after it."""


def plan(batch: int, **other: Any) -> Planned:
    """Return a batch of ten source records."""
    return replace(Planned("query", batch, (10 * batch,), (10 * batch + 10,), 1_000, 2_000 + batch), **other)


@pytest.fixture
def app(broker: Broker, tmp_path: Any) -> App:
    """Return a fresh app on the shuffled path."""
    return provisioned(
        broker.bootstrap,
        flow={"path": "windows"},
        windows={"late": "drop"},
        spark={"checkpoint": str(tmp_path)},
    )


def write(app: App, planned: Planned, values: list[int], **given: Any) -> LaneReport:
    """Run one lane's task of a batch."""
    writer = ShuffledWriter(app.task(-1, -1, planned=planned, **given))
    outputs = [app.output(value) for value in values]
    writer.write_part(Part(lane=0, read=10, stamps=[1] * 10, outputs=outputs))
    return writer.report


def test_a_batch_that_is_run_again_writes_nothing_in_a_lane_that_has_it(app: App) -> None:
    write(app, plan(0), [1, 2])
    write(app, plan(1), [3])
    before = app.lane_records()
    report = write(app, plan(1), [3])
    assert (report.skipped, report.commits) == (1, [])
    assert app.written() == [1, 2, 3]
    assert app.lane_records() == before
    write(app, plan(2), [])
    lane = app.lane()
    assert lane.token == plan(2).token()
    assert (lane.next_offset, lane.counters.read, lane.counters.written, lane.counters.transactions) == (30, 30, 3, 3)


def test_a_replay_that_diverges_stops_the_job_and_nothing_is_written(app: App) -> None:
    write(app, plan(0), [1])
    for other in (plan(0, offsets=(11,)), plan(0, watermark_ms=999), plan(0, query_id="other"), plan(2)):
        with pytest.raises(SafeStop):
            write(app, other, [2])
    assert app.written() == [1]
    assert app.lane().token == plan(0).token()


def test_an_old_record_that_looks_like_a_gap_does_not_stop_the_job(app: App) -> None:
    write(app, plan(0), [1])
    old = app.recalled()
    write(app, plan(1), [2])
    report = write(app, plan(2), [3], recalled=old)
    assert report.outcomes == {"moved": 1, "committed": 1}
    assert app.written() == [1, 2, 3]


def test_a_stop_is_taken_before_a_batch_and_not_between_its_lanes(app: App, tmp_path: Any) -> None:
    stop = tmp_path / "stop"
    write(app, plan(0), [1], stop_file=str(stop))
    stop.touch()
    with pytest.raises(Stopped):
        write(app, plan(1), [2], stop_file=str(stop))
    (tmp_path / "begun").write_text("1", "ascii")  # by another lane, before the stop was asked for
    write(app, plan(1), [2], stop_file=str(stop))
    assert app.written() == [1, 2]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_writer_killed_at_any_step_is_continued_exactly(
    app: App, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    write(app, plan(0), [1, 2])
    real = getattr(Transaction, step)

    def killed(self: Transaction, *args: Any, **given: Any) -> None:
        if after:
            real(self, *args, **given)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(Transaction, step, killed)
        dying.setattr(Transaction, "abandon", lambda _: None)
        with pytest.raises(Killed):
            write(app, plan(1), [3, 4])
    write(app, plan(1), [3, 4])
    assert app.written() == [1, 2, 3, 4]
    assert app.lane().counters.written == 4
    assert [lane.token.batch_id for lane in app.lane_records() if lane.token is not None] == [0, 1]


def noted(calls: list[str], real: Any) -> Any:
    """Note when the originals of letters have been read."""

    def letters(*given: Any) -> Any:
        yield from real(*given)
        calls.append("read again")

    return letters


def write_armed(app: App, environ: dict[str, str]) -> None:
    """Write the second batch in a process of its own that is held at a gate."""
    os.environ.update(environ)
    write(app, plan(1), [3, 4])


# The whole-job cases of the same name take minutes: these kill for real, in seconds, in every run of the tests.
@pytest.mark.parametrize(
    ("place", "visible"),
    [
        pytest.param("before commit", [1, 2], id="W7", marks=pytest.mark.fault("W7")),
        pytest.param("after commit", [1, 2, 3, 4], id="W8", marks=pytest.mark.fault("W8")),
    ],
)
def test_a_process_killed_beside_its_commit_leaves_all_of_the_batch_or_nothing_and_the_next_one_knows_which(
    app: App, tmp_path: Path, place: str, visible: list[int]
) -> None:
    write(app, plan(0), [1, 2])
    gate = Gate(tmp_path / "gate", place, nth=1)
    process = processes().Process(target=write_armed, args=(app, gate.environ), daemon=True)
    process.start()
    wait_until(gate.holds, what=f"the writer waits at: {place}")
    process.kill()
    process.join(DEADLINE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    report = write(app, plan(1), [3, 4])
    assert report.skipped == len(visible) - 2
    assert app.written() == [1, 2, 3, 4]
    assert app.lane().token == plan(1).token()
    assert (app.lane().counters.written, app.lane().counters.transactions) == (4, 2)


def test_late_and_unsound_records_are_set_aside_byte_for_byte(
    broker: Broker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap)
    late_topic = f"{app.settings.app.id}-late"
    values = {
        **app.settings.model_dump(),
        "flow": {"path": "windows"},
        "windows": {"late_topic": late_topic},
        "spark": {"checkpoint": str(tmp_path)},
    }
    values["output"] = {**values["output"], "topics": (app.out, late_topic)}
    app = replace(app, settings=type(app.settings).model_validate(values))
    provision(app.settings, lambda _: None)
    fill(broker.bootstrap, app.source.name, [(b"k%d" % number, b"v%d" % number, [("h", b"x")]) for number in range(10)])
    calls: list[str] = []
    spy_on_producers(monkeypatch, calls)
    monkeypatch.setattr(shuffled, "dead_letters", noted(calls, dead_letters))
    writer = ShuffledWriter(app.task(-1, -1, planned=plan(0)))
    part = Part(lane=0, read=9, stamps=[1] * 10, dead=[(0, 7, "not valid UTF-8"), (0, 2, "time: none")], late=[(0, 5)])
    writer.write_part(part)
    assert calls[:4] == ["init", "read again", "read again", "begin"], "a transaction must not wait for the source"
    letters = {dict(one.headers)["dead-letter-reason"]: (one.key, one.value) for one in app.letters()}
    assert letters == {b"time": (b"k2", b"v2"), b"decode": (b"k7", b"v7")}
    [late] = read_committed(broker.bootstrap, late_topic)
    assert (late.key, late.value, late.headers[0]) == (b"k5", b"v5", ("h", b"x"))
    told = dict(late.headers)
    assert (told["dead-letter-reason"], told["dead-letter-detail"]) == (b"late", b"batch 0, watermark 1000 ms")
    assert app.lane().counters.verdicts == {"late": 1}
    assert app.lane().counters.dead_letters == {"time": 1, "decode": 1}
