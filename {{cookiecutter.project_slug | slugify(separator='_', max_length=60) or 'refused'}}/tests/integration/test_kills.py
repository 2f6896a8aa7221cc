"""Writers that are killed, and writers that compete: whatever happens to them, the lane ends exact."""

from __future__ import annotations

import random
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.kafka import DEADLINE_SECONDS, read_committed, read_uncommitted, wait_until
from tests.support.lanes import App, processes, provisioned, write_on

from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from pipeline.local.broker import Broker


# How often two writers race at most.
ROUNDS = 10


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up after it."""


def assert_exact(app: App, rows: int) -> None:
    """Demand every row once and in order, and a lane that never went back and counted nothing twice."""
    assert app.written() == list(range(rows))
    offsets = [lane.next_offset for lane in app.lane_records()]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == rows
    counters = app.lane().counters
    assert (counters.read, counters.written, counters.verdicts) == (rows, rows, {"fresh": rows})


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["fence", "begin", "send_all", "put_lane_record", "flush_and_compare", "commit"])
def test_a_writer_killed_at_any_step_is_continued_exactly(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    app = provisioned(broker.bootstrap, transaction={"chunk_rows": 10})
    app.write(0, 5)
    real = getattr(Transaction, step)

    def killed(self: Transaction, *args: Any, **given: Any) -> None:
        if after:
            real(self, *args, **given)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(Transaction, step, killed)
        dying.setattr(Transaction, "abandon", lambda _: None)
        with pytest.raises(Killed):
            app.write(0, 15)
    report = app.write(0, 30)
    assert report.failures == {}
    assert_exact(app, 30)


def has_moved(app: App, end: int) -> bool:
    """Tell whether the lane has a new record."""
    return app.glance().end > end


def is_torn(broker: Broker, app: App) -> bool:
    """Tell whether the log holds rows that were not committed."""
    whole = read_committed(broker.bootstrap, app.out, behind_open=True)
    return len(read_uncommitted(broker.bootstrap, app.out)) > len(whole)


def test_a_writer_that_is_killed_again_and_again_writes_every_row_once(broker: Broker) -> None:
    seed = time.time_ns()
    chance = random.Random(seed)  # noqa: S311  a schedule, not a secret
    app = provisioned(broker.bootstrap)
    kills, deadline = 0, time.monotonic() + 120
    # On a quick machine most kills fall between two transactions: go on until one did not.
    while (kills < 20 or not is_torn(broker, app)) and time.monotonic() < deadline:
        end = app.glance().end
        process = processes().Process(target=write_on, args=(app, 1_000_000, 500), daemon=True)
        process.start()
        wait_until(partial(has_moved, app, end), what="the writer has committed something")
        process.join(chance.uniform(0, 0.15))
        process.kill()
        process.join(DEADLINE_SECONDS)
        assert process.exitcode == -signal.SIGKILL
        kills += 1
    reached = app.lane().next_offset + 500
    write_on(app, reached, step=250)
    assert_exact(app, reached)
    # Kills did fall into open transactions: there are rows in the log that nobody sees.
    assert kills >= 10, f"seed {seed}"
    assert len(read_uncommitted(broker.bootstrap, app.out)) > reached, f"seed {seed}"


def test_two_writers_of_one_lane_in_two_processes_write_every_row_once(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    reached, failed = 0, 0
    with ProcessPoolExecutor(2, processes()) as pool:
        # One may be done before the other has begun: go on until they met.
        while not failed and reached < 120 * ROUNDS:
            reached += 120
            rivals = [pool.submit(write_on, app, reached, 3) for _ in range(2)]
            failed = sum(rival.result(DEADLINE_SECONDS) for rival in rivals)
    assert_exact(app, reached)
    assert failed > 0, "they never met"
