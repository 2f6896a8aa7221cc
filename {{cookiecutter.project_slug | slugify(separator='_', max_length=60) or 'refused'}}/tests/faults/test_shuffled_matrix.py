"""W1 to W10: the crash matrix on the shuffled path. Killed at each place of a batch, windows stay exact.

The places are those of C1 to C10; what is demanded is that results, late records and dead letters together are all of
the input, computed anew from the source topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.faults.test_crash_matrix import PLACES, lose_an_answer, resume
from tests.support.arena import RECOVERY_SECONDS, TIMEOUT_MS, Arena, shared
from tests.support.armed import Faults
from tests.support.kafka import fresh
from tests.support.windowed import MINUTE, WindowedApp, windowed_app

from pipeline.local.node import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.arena import Evidence
    from tests.support.proxy import ProxiedBroker

ACTIONS = ("kill worker", "kill job", "raise", "pause")
# Where more can go wrong than that the work is lost.
EVERY_ACTION = ("C4", "C7", "C8")


@dataclass
class WindowedArena(Arena):
    """A job with windows of one minute; event time goes on from case to case."""

    minute: int = 0
    newest_ms: int | None = None

    @property
    def windowed(self) -> WindowedApp:
        """The app, as what it is."""
        assert isinstance(self.app, WindowedApp)
        return self.app

    def work(self, seed: int, count: int = 1_000) -> None:
        """Send payments of the next ten minutes, some that are late by far, and some that are no payments."""
        rows = [
            (number % 2, f"{seed}-{self.minute}-{number}", f"account-{number % 37}", self._at(number, count))
            for number in range(count)
        ]
        self.newest_ms = max(at for *_, at in rows)
        self.windowed.pay_at(rows)
        self.app.put([(number % 2, number, "till", b"no payment") for number in range(20)])
        self.minute += 10

    def _at(self, number: int, count: int) -> int:
        if number % 50 == 49 and self.minute:
            return MINUTE * (self.minute - 10)
        return self.minute * MINUTE + number * 10 * MINUTE // count

    def caught_up(self) -> bool:
        """Tell whether all events are read, and the batch is done that closes the windows they made due."""
        if not super().caught_up():
            return False
        if self.newest_ms is None:
            return True
        due = self.newest_ms - self.app.settings.windows.watermark_seconds * 1000
        tokens = [lane.token for lane in self._lookout.lanes().values()]
        return all(token is not None and token.watermark_ms == due for token in tokens)

    def assert_exact(self) -> None:
        """Demand exact windows, metrics that tell the truth, and no transaction left open."""
        self.watch(self.metrics_are_true, RECOVERY_SECONDS, "the scraped figures are those of the lane records")
        self.app.assert_exact()
        assert self.data is not None
        self.assert_files_agree(self.data)
        assert self.windowed.late_ones() > 0 or self.minute <= 10


@pytest.fixture(scope="module")
def arenas(proxied: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], WindowedArena]]:
    """Return what gives the arena: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("windows")
    with shared(lambda: windowed_arena(proxied, folder)) as give:
        yield give


def windowed_arena(proxied: ProxiedBroker, folder: Path) -> WindowedArena:
    """Make an app and an arena for it."""
    place = folder / fresh("arena")
    place.mkdir()
    app = windowed_app(
        proxied.bootstrap,
        place,
        source={"max_offsets_per_trigger": 600},
        transaction={"timeout_ms": TIMEOUT_MS, "chunk_seconds": 2.0},
        metrics={"port": free_ports(1)[0].client},
    )
    return WindowedArena(app, proxied.proxied, Faults(place), proxied.data(), transform=app.function)


def cases() -> Iterator[object]:
    """Kills at every place; the rest where it can differ."""
    for case in PLACES:
        for action in ACTIONS if case in EVERY_ACTION else ACTIONS[:2]:
            marks = [pytest.mark.fault(f"W{case[1:]}"), pytest.mark.long]
            yield pytest.param(case, action, id=f"W{case[1:]}-{action.replace(' ', '-')}", marks=marks)


@pytest.mark.parametrize(("case", "action"), [*cases()])
def test_windows_are_exact_after_a_crash(
    arenas: Callable[[], WindowedArena], proxied: ProxiedBroker, evidence: Evidence, case: str, action: str
) -> None:
    used = arenas()
    used.evidence, used.broken = evidence, True
    used.watch(used.caught_up, what="the job runs")
    answer_lost = case == "C7"
    used.faults.arm(PLACES[case], "wait" if answer_lost else action, nth=1 + evidence.seed % 2)
    used.work(evidence.seed)
    used.watch(lambda: used.faults.struck() or used.caught_up(), what="the fault strikes")
    struck = used.faults.struck()
    assert struck is not None, "the job caught up without passing the place"
    if answer_lost:
        lose_an_answer(proxied.proxy, used, action)
    elif action == "pause":
        resume(used, struck)
    used.assert_recovered()
