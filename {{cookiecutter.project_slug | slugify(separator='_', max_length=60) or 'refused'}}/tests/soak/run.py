"""Let a job live long, on three brokers, under random faults; then demand an exact output, and that nothing has grown.

Usage: python -m tests.soak.run [--minutes 60] [--folder build/soak] [--seed N]

All of it lies in the folder: the brokers' data, the app, the history, the samples. A soak that was ended, in whatever
way, goes on when it is started again with the same folder, until its minutes are full. Faults strike in rounds; between
them is a calm in which the job catches up and is looked at. Exit code 0: exact, and flat.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.test_random_schedule import FAULTS, PLACES, Schedule
from tests.soak.samples import growth, look, read
from tests.support.armed import Faults
from tests.support.cluster import NODES, Watched, heal, watched
from tests.support.job import App

from pipeline.local.broker import Broker
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUND_SECONDS = 45.0
# Of these the job's driver lives on; what ends it would begin every figure anew, so that strikes seldom.
MILD = [name for name in FAULTS if "job" not in name and "checkpoint" not in name]
OF_TASKS = tuple(place for place in PLACES if not place.endswith((" batch", " sequel")))
# Longer than any start of the job on a machine that is busy with other things; a job that hangs is found all the same.
CALM_SECONDS = 600.0
HARSH_EVERY = 8
TERMINATED = 128 + signal.SIGTERM
APP, SAMPLES, HISTORY = "app.json", "samples.jsonl", "history.jsonl"


def arena(cluster: Broker, folder: Path) -> Watched:
    """The app of this soak, made at its first start, on brokers whose ports are others at each start."""
    kept = folder / APP
    if not kept.exists():
        made = watched(cluster, folder)
        kept.write_text(json.dumps({"settings": made.app.settings.model_dump(), "place": str(made.app.folder)}))
        return made
    found = json.loads(kept.read_text(encoding="utf-8"))
    found["settings"]["source"]["bootstrap"] = cluster.bootstrap
    place = Path(found["place"])
    return Watched(App(build(found["settings"]), place), cluster.bootstrap, Faults(place))


class Soak(Schedule):
    """Rounds of faults, and a calm after each."""

    def rounds(self, until: float, began: float, samples: Path) -> None:
        """Go on until the time is full."""
        number = 0
        while time.time() < until:
            number += 1
            harsh = number % HARSH_EVERY == 0
            mix, self.places = (sorted(FAULTS), PLACES) if harsh else (MILD, OF_TASKS)
            end = time.monotonic() + ROUND_SECONDS
            while time.monotonic() < end:
                self.work()
                fault = self.choose.choice(mix)
                self.note(fault)
                FAULTS[fault](self)
                self.used.elapse(self.choose.uniform(2.0, 6.0), "the next fault is due")
            self.calm()
            sample = look(self.used.running.pid, began, self.cluster.bootstrap, self.used.app.settings.app.id)
            with samples.open("a", encoding="utf-8") as file:
                file.write(f"{sample.as_text()}\n")
            self.note("sample", **sample.figures)

    def calm(self) -> None:
        """End all faults, and let the job catch up."""
        self.used.faults.disarm()
        heal(self.cluster)
        self.work()
        self.wake()
        self.used.watch(self.used.caught_up, CALM_SECONDS, "the job has caught up")


def main(arguments: Sequence[str]) -> int:
    """Run, judge, and say so."""
    parser = argparse.ArgumentParser(prog="make soak", description="Let a job live for long, under random faults.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, default=Path("build/soak"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--afresh", action="store_true", help="delete what an earlier soak left in the folder")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # as Ctrl-C does: the job must not outlive its soak
    if given.afresh:
        shutil.rmtree(given.folder, ignore_errors=True)
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    samples = folder / SAMPLES
    done = max((sample.second for sample in read(samples)), default=0.0)
    began = time.time() - done
    with Broker(folder / "kafka", nodes=NODES) as cluster, arena(cluster, folder) as used:
        soak = Soak(used, cluster, random.Random(given.seed), folder / HISTORY)  # noqa: S311  to repeat
        soak.note("begin", seed=given.seed, minutes=given.minutes, done=round(done / 60, 1))
        soak.rounds(began + given.minutes * 60, began, samples)
        soak.calm()
        used.assert_exact()
        used.running.send(signal.SIGTERM)
        code = used.running.wait()
        grown = growth(read(samples))
        soak.note("end", exact=True, grown=grown, restarts=used.evidence.restarts, exit=code)
    sys.stdout.write(f"exact; {f'grown: {grown}' if grown else 'nothing has grown'}; see {samples}\n")
    return int(bool(grown) or code != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
