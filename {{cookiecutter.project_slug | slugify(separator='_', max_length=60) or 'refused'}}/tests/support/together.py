"""Several lanes that are written together: held in mid write, and demanded to be exact."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.kafka import DEADLINE_SECONDS, wait_until
from tests.support.lanes import App, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.local.gate import Gate

    Write = Callable[[App, int, int], object]

LANES = 3


@contextmanager
def held_at(write: Write, app: App, gate: Gate, until: int = 10) -> Iterator[Any]:
    """Give a process that writes all lanes, from their begin, and waits at the gate."""
    process = processes().Process(target=_armed, args=(write, app, gate.environ, until), daemon=True)
    process.start()
    wait_until(gate.holds, what=f"the writer waits at: {gate.place}")
    yield process
    gate.open()
    process.join(DEADLINE_SECONDS)


def _armed(write: Write, app: App, environ: dict[str, str], until: int) -> None:
    os.environ.update(environ)
    write(app, 0, until)


def assert_exact(app: App, rows: int) -> None:
    """Demand every row of every lane once, and lanes that went forward and counted nothing twice."""
    assert sorted(app.written()) == sorted([*range(rows)] * LANES)
    for lane in range(LANES):
        offsets = [record.next_offset for record in app.lane_records(lane)]
        assert offsets == sorted(offsets)
        counters = app.lane(lane).counters
        assert (offsets[-1], counters.read, counters.verdicts) == (rows, rows, {"fresh": rows})
