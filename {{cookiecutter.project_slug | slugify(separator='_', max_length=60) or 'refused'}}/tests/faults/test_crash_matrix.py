"""C1 to C10: the job is killed, fails or freezes at each place of a batch, and its output stays exact.

C1   before the fence               C6   lane record delivered and compared
C2   after the fence                C7   commit sent, its answer lost
C3   after begin                    C8   commit confirmed, task not yet ended
C4   amid the output rows           C9   tasks ended, Spark's commit log not yet written
C5   lane record handed over        C10  after the commit log
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import TIMEOUT_MS, Arena, arena, shared
from tests.support.proxy import END_TXN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.arena import Evidence
    from tests.support.proxy import ProxiedBroker, Proxy

PLACES = {
    "C1": "before fence",
    "C2": "after fence",
    "C3": "after begin",
    "C4": "amid produce",
    "C5": "after lane record",
    "C6": "after compare",
    "C7": "before commit",
    "C8": "after commit",
    "C9": "after batch",
    "C10": "before batch",
}
ACTIONS = ("kill worker", "kill job", "raise", "pause")
# Of those that start the whole job again, which takes longest, `make test` runs the one whose outcome is uncertain.
QUICK_KILLS = ("C7",)
# The broker has long ended a transaction whose writer slept for so long.
PAUSE_SECONDS = 2 * TIMEOUT_MS / 1000
# More than a client tries until its commit is uncertain.
LOST_ANSWERS = 1_000


@pytest.fixture(scope="module")
def arenas(proxied: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Arena]]:
    """Return what gives the arena: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("matrix")
    with shared(lambda: arena(proxied, folder, through=proxied.proxied)) as give:
        yield give


def cases() -> Iterator[object]:
    """All pairs; those that cost a wait longer than the fault itself are for `make faults`."""
    for case in PLACES:
        for action in ACTIONS:
            marks = [pytest.mark.fault(case)]
            if action in {"raise", "pause"} or (action == "kill job" and case not in QUICK_KILLS):
                marks.append(pytest.mark.long)
            yield pytest.param(case, action, id=f"{case}-{action.replace(' ', '-')}", marks=marks)


@pytest.mark.parametrize(("case", "action"), [*cases()])
def test_the_output_is_exact_after_a_crash(
    arenas: Callable[[], Arena], proxied: ProxiedBroker, evidence: Evidence, case: str, action: str
) -> None:
    used = arenas()
    used.evidence, used.broken = evidence, True
    used.watch(used.caught_up, what="the job runs")
    answer_lost = case == "C7"
    used.faults.arm(PLACES[case], "wait" if answer_lost else action, nth=1 + evidence.seed % 3)
    used.work(evidence.seed)
    used.watch(lambda: used.faults.struck() or used.caught_up(), what="the fault strikes")
    struck = used.faults.struck()
    assert struck is not None, "the job caught up without passing the place"
    if answer_lost:
        lose_an_answer(proxied.proxy, used, action)
    elif action == "pause":
        resume(used, struck)
    used.assert_recovered()


def resume(used: Arena, pid: int) -> None:
    """Let the struck process go on when the broker has given its transaction up."""
    until = time.monotonic() + PAUSE_SECONDS
    used.watch(lambda: time.monotonic() > until, what="the transaction timed out")
    os.kill(pid, signal.SIGCONT)


def lose_an_answer(proxy: Proxy, used: Arena, action: str) -> None:
    """Strike between the broker's answer to the commit, and the client that waits for it."""
    pid = used.faults.struck()
    assert pid is not None
    struck: list[float] = []

    def strike() -> None:
        if action == "kill worker":
            os.kill(pid, signal.SIGKILL)
        elif action == "kill job":
            used.kill()
        elif action == "pause":
            os.kill(pid, signal.SIGSTOP)
        struck.append(time.monotonic())

    if action == "raise":
        proxy.lose_answers(END_TXN, LOST_ANSWERS)
        used.faults.go()
        until = time.monotonic() + PAUSE_SECONDS
        used.watch(lambda: time.monotonic() > until, what="the commit has timed out")
        proxy.forget_rules()
        return
    proxy.after_next(END_TXN, strike)
    used.faults.go()
    used.watch(lambda: struck, what="the commit was answered")
    if action == "pause":
        resume(used, pid)
