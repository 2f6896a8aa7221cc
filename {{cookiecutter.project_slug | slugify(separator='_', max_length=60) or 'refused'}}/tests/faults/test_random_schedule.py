"""X1: everything, in an order that one seed decides; then the faults end, and the output is exact.

A fault strikes every ten seconds or so: the job is killed, frozen, told to stop, hit at one of its fault points, loses
its checkpoint; a node of the cluster is killed or frozen. The mix changes every half minute, and a quarter of them are
calm. All nodes are never killed at once, which Kafka 4.3.1 does not survive between a commit and its markers
(KAFKA-20734). `FAULT_SECONDS` sets the length, `FAULT_SEED` the seed, which is printed, as is all that was done.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.support.cluster import NODES, Watched, heal, watched

from pipeline.local.broker import Broker
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.arena import Evidence

SECONDS = float(os.environ.get("FAULT_SECONDS", "60"))
SEED = os.environ.get("FAULT_SEED")
MIX_SECONDS = 30.0
GAPS = (5.0, 15.0)
CALM = 0.25
MIXED = 4
SETTLED_SECONDS = 0.5
PLACES = (
    "before fence",
    "after fence",
    "after begin",
    "amid produce",
    "after lane record",
    "after compare",
    "before commit",
    "after commit",
    "after batch",
    "before batch",
    "before sequel",
)


@dataclass
class Schedule:
    """Hurts a job and its cluster; every choice comes of one seed, whatever the clock does."""

    used: Watched
    cluster: Broker
    choose: random.Random
    path: Path
    began: float = field(default_factory=time.monotonic)
    places: tuple[str, ...] = PLACES

    def note(self, what: str, **details: object) -> None:
        """Keep what was done, and print it."""
        line = json.dumps({"second": round(time.monotonic() - self.began, 1), "what": what, **details})
        print(line, flush=True)  # noqa: T201  the history of a run that failed
        with self.path.open("a", encoding="utf-8") as history:
            history.write(f"{line}\n")

    def run(self, seconds: float) -> None:
        """Strike until the time is over; the job always has work."""
        end = time.monotonic() + seconds
        mix = self._mix()
        mix_ends = time.monotonic() + MIX_SECONDS
        while time.monotonic() < end:
            if time.monotonic() >= mix_ends:
                mix, mix_ends = self._mix(), time.monotonic() + MIX_SECONDS
            self.work()
            if mix:
                self._strike(self.choose.choice(mix))
            self.used.elapse(self.choose.uniform(*GAPS), "the next fault is due")

    def _mix(self) -> list[str]:
        mix = [] if self.choose.random() < CALM else self.choose.sample(sorted(FAULTS), MIXED)
        self.note("mix", faults=mix)
        return mix

    def work(self) -> None:
        """Send more payments; they must all be taken before the next fault."""
        self.used.work(self.choose.randrange(1_000_000), count=200)

    def _strike(self, fault: str) -> None:
        self.note(fault)
        FAULTS[fault](self)

    def at_a_fault_point(self, action: str) -> None:
        """Arm one; it strikes when the job passes it."""
        self.settle_last()
        place, nth = self.choose.choice(self.places), self.choose.randint(1, 3)
        self.note("arm", place=place, action=action, nth=nth)
        self.used.faults.arm(place, action, nth)

    def freeze_worker(self) -> None:
        """Freeze the process that passes a fault point, for longer than its transaction lasts or not."""
        self.at_a_fault_point("pause")
        until = time.monotonic() + GAPS[1]
        self.used.watch(lambda: self.used.faults.struck() or time.monotonic() > until, what="the fault strikes")
        self.used.elapse(self.choose.uniform(1, 12), "a worker is frozen")
        self.wake()

    def settle_last(self) -> None:
        """Disarm what was armed last; should it have struck late, and frozen a worker, nobody else would wake that."""
        self.used.faults.disarm()
        self.used.elapse(SETTLED_SECONDS, "whoever has read the plan has acted by it")
        self.wake()

    def wake(self) -> None:
        """Let what was frozen go on, also where the fault struck late."""
        if (pid := self.used.faults.struck()) is not None:
            with suppress(ProcessLookupError):  # the job was ended or started anew meanwhile
                os.kill(pid, signal.SIGCONT)

    def kill_job(self) -> None:
        """Kill it with all that came of it."""
        self.used.kill()

    def stop_job(self) -> None:
        """Tell it to stop; its supervisor starts it again."""
        self.used.running.send(signal.SIGTERM)

    def freeze_job(self) -> None:
        """Freeze the job for longer than its transactions last."""
        pids = tree(self.used.running.pid)
        signal_all(pids, signal.SIGSTOP)
        self.used.elapse(self.choose.uniform(1, 12), "the job is frozen")
        signal_all(pids, signal.SIGCONT)

    def kill_node(self) -> None:
        """Kill one node, and start it again."""
        node = self._node()
        self.cluster.kill(node)
        self.used.elapse(self.choose.uniform(1, 10), f"node {node} is away")
        self.cluster.restart(node)

    def freeze_node(self) -> None:
        """Freeze one node, for long enough to be replaced or not."""
        node = self._node()
        self.cluster.pause(node)
        self.used.elapse(self.choose.uniform(1, 15), f"node {node} is frozen")
        self.cluster.resume(node)

    def lose_checkpoint(self) -> None:
        """Kill the job, and delete its checkpoint."""
        self.used.kill()
        shutil.rmtree(self.used.app.checkpoint, ignore_errors=True)

    def _node(self) -> int:
        node = self.choose.randint(1, NODES)
        self.note("node", number=node)
        return node


FAULTS: dict[str, Callable[[Schedule], None]] = {
    "kill worker at a fault point": lambda schedule: schedule.at_a_fault_point("kill worker"),
    "kill job at a fault point": lambda schedule: schedule.at_a_fault_point("kill job"),
    "raise at a fault point": lambda schedule: schedule.at_a_fault_point("raise"),
    "freeze worker at a fault point": Schedule.freeze_worker,
    "kill job": Schedule.kill_job,
    "freeze job": Schedule.freeze_job,
    "stop job": Schedule.stop_job,
    "kill node": Schedule.kill_node,
    "freeze node": Schedule.freeze_node,
    "lose checkpoint": Schedule.lose_checkpoint,
}


@pytest.mark.fault("X1")
@pytest.mark.long
@pytest.mark.timeout(SECONDS * 3 + 600)
def test_the_output_is_exact_after_a_random_schedule_of_faults(tmp_path: Path, evidence: Evidence) -> None:
    evidence.seed = int(SEED) if SEED else evidence.seed
    with Broker(nodes=NODES) as cluster, watched(cluster, tmp_path) as used:
        used.evidence = evidence
        schedule = Schedule(used, cluster, random.Random(evidence.seed), tmp_path / "history.jsonl")  # noqa: S311  to repeat
        schedule.note("seed", seed=evidence.seed, seconds=SECONDS)
        used.begin(evidence.seed, count=200)
        schedule.run(SECONDS)
        used.faults.disarm()
        heal(cluster)
        schedule.note("healed", restarts=evidence.restarts)
        schedule.work()
        schedule.wake()
        used.assert_recovered()
        schedule.note("exact", recovery=round(evidence.recovery or 0.0, 1), ends=used.exits)
