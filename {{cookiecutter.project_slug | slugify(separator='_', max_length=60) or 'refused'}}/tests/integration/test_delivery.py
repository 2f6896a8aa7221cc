"""Delivery by setting, on a real broker: what a kill between output and progress does to each of the three."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.support.kafka import DEADLINE_SECONDS, read_uncommitted, wait_until
from tests.support.lanes import App, fill, processes, provisioned, row
from tests.support.rows import columnar

from pipeline.errors import Replaced
from pipeline.kafka import TransactionFailed
from pipeline.lanes.takeover import take_over
from pipeline.lanes.weaker import Outlet, writer_of
from pipeline.local.compare import PLACES
from pipeline.local.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pipeline.lanes.report import LaneReport
    from pipeline.lanes.task import LaneTask
    from pipeline.lanes.transaction import Sendable
    from pipeline.local.broker import Broker

ROWS = 30


def app_with(broker: Broker, semantics: str) -> App:
    """Return a fresh app with that delivery, whose chunks have ten rows."""
    return provisioned(broker.bootstrap, transaction={"chunk_rows": 10}, delivery={"semantics": semantics})


def write(app: App, first: int, until: int, task: LaneTask | None = None) -> LaneReport:
    """Run the writer that the app's setting demands."""
    writer = writer_of(task or app.task(first, until))
    writer.write([columnar(app.rows(first, until))])
    return writer.report


def write_armed(app: App, environ: dict[str, str]) -> None:
    """Write all rows, in a process of its own that may be held at a gate."""
    os.environ.update(environ)
    write(app, 0, ROWS)


def killed_at_the_gate(app: App, gate: Gate) -> None:
    """Let a writer come to the gate, and kill it there."""
    process = processes().Process(target=write_armed, args=(app, gate.environ), daemon=True)
    process.start()
    wait_until(gate.holds, what=f"the writer waits at: {gate.place}")
    process.kill()
    process.join(DEADLINE_SECONDS)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("semantics", "lost", "duplicated"),
    [("exactly-once", 0, 0), ("at-least-once", 0, 10), ("at-most-once", 10, 0)],
)
def test_a_kill_between_output_and_progress_costs_what_the_delivery_allows(
    broker: Broker, tmp_path: Path, semantics: str, lost: int, duplicated: int
) -> None:
    app = app_with(broker, semantics)
    killed_at_the_gate(app, Gate(tmp_path / "gate", PLACES[semantics], nth=2))
    write(app, 0, ROWS)
    found = Counter(app.written())
    assert len(set(range(ROWS)) - set(found)) == lost
    assert sum(count - 1 for count in found.values()) == duplicated
    # Progress is exact whatever the delivery: each record is counted once.
    assert (app.lane().next_offset, app.lane().counters.read) == (ROWS, ROWS)


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once", "at-most-once"])
def test_without_a_crash_all_three_write_each_record_once(broker: Broker, semantics: str) -> None:
    app = app_with(broker, semantics)
    assert write(app, 0, ROWS).failures == {}
    assert app.written() == list(range(ROWS))
    assert app.lane().counters.written == ROWS
    assert len(read_uncommitted(broker.bootstrap, app.out)) == ROWS


def test_at_least_once_takes_every_record_for_a_new_one_and_needs_no_identity(broker: Broker) -> None:
    app = app_with(broker, "at-least-once")
    rows = [
        row(0, [app.output(0)]),
        row(1, [app.output(0)], seq=0),
        row(2, [app.output(2)], producer_id=None),
        row(3, [], error="decode: not JSON"),
        row(4, []),
    ]
    fill(broker.bootstrap, app.source.name, [(b"k", b"v", [])] * 5)
    writer = writer_of(app.task(0, 5))
    writer.write([columnar(rows)])
    assert app.written() == [0, 0, 2]
    counters = app.lane().counters
    assert (counters.read, counters.written, counters.dropped) == (5, 3, 1)
    assert (counters.verdicts, counters.dead_letters) == ({}, {"decode": 1})
    assert len(app.letters()) == 1


def test_at_most_once_still_holds_back_what_the_upstream_sent_twice(broker: Broker) -> None:
    app = app_with(broker, "at-most-once")
    writer = writer_of(app.task(0, 2))
    writer.write([columnar([row(0, [app.output(0)]), row(1, [app.output(0)], seq=0)])])
    assert app.written() == [0]
    assert app.lane().counters.verdicts == {"fresh": 1, "duplicate": 1}


@pytest.mark.parametrize(("semantics", "expected"), [("at-least-once", [*range(10)] * 2), ("at-most-once", [])])
def test_an_output_that_could_not_be_delivered_is_repeated_or_lost_but_never_both(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, semantics: str, expected: list[int]
) -> None:
    app = app_with(broker, semantics)
    real = Outlet.send
    failed: list[bool] = []

    def send(self: Outlet, *parts: Iterable[Sendable]) -> None:
        if failed:
            real(self, *parts)
            return
        failed.append(True)
        if semantics == "at-least-once":
            real(self, *parts)
        msg = "not delivered, as far as anybody knows"
        raise TransactionFailed(msg)

    monkeypatch.setattr(Outlet, "send", send)
    assert write(app, 0, 10).failures == {"transactionfailed": 1}
    assert app.written() == expected
    assert app.lane().next_offset == 10


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
def test_of_two_runs_the_newer_wins_under_a_weaker_delivery_too(broker: Broker, semantics: str) -> None:
    app = app_with(broker, semantics)
    first, _ = take_over(app.settings, app.source)
    take_over(app.settings, app.source)
    with pytest.raises(Replaced, match="replaced by run 2"):
        write(app, 0, 5, app.task(0, 5, run=first))
    assert app.written() == []


def test_a_lane_goes_on_where_it_stands_when_its_delivery_is_changed(broker: Broker) -> None:
    app = app_with(broker, "at-least-once")
    write(app, 0, 10)
    stricter = App(app.settings.model_copy(update={"delivery": type(app.settings.delivery)()}), app.source)
    write(stricter, 0, 20)
    assert app.written() == list(range(20))
