"""The three deliveries side by side: the same payments, the same kills, and what the audit finds of each.

Guarantee: the outcome is no matter of luck. Each job is killed while one of its workers is held between output and
progress, which is where the three differ: exactly-once has both or neither, at-least-once has sent what it will send
again, at-most-once has passed what it will never send. A comparison that shows anything else ends with an error.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec
from rich.table import Table

from pipeline.errors import PipelineError
from pipeline.lanes.provision import provision
from pipeline.lanes.topics import Topics
from pipeline.lanes.weaker import BETWEEN
from pipeline.local.broker import Broker
from pipeline.local.demo import SHOW_SECONDS, STALL_SECONDS, Demo
from pipeline.local.gate import Gate
from pipeline.local.processes import signal_all, tree
from pipeline.observe.show import run_audit
from pipeline.settings import Settings, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.observe.audit import AuditResult

# Where a worker is held when its job is killed; a transaction makes output and progress one, so there it is the commit.
PLACES = {"exactly-once": "before commit", "at-least-once": BETWEEN, "at-most-once": BETWEEN}
# Which of the transactions of a run, over all lanes, is held: so some are done before, and some never begun.
KILLS = (3, 5)
COLUMNS = ("expected", "found", "lost", "duplicated")


class Compare(Demo):
    """The demo three times over, with another delivery each time."""

    def run_all(self) -> dict[str, AuditResult]:
        """Run it; the caller judges by the results."""
        with ExitStack() as exits:
            folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="pipeline-compare-")))
            self._say("start a Kafka broker (KRaft, one node)")
            broker = exits.enter_context(Broker(folder / "kafka"))
            self._send(load(self._settings_file, {**os.environ, **self._overrides(broker.bootstrap, folder)}))
            results = {}
            for semantics in PLACES:
                place = folder / semantics
                place.mkdir()
                results[semantics] = self._one(semantics, broker.bootstrap, place)
            self._console.print(table_of(results))
            return results

    def _one(self, semantics: str, bootstrap: str, folder: Path) -> AuditResult:
        plain = load(self._settings_file)
        environ = {
            **self._overrides(bootstrap, folder),
            "PIPELINE_APP__ID": f"{plain.app.id[:60]}-{semantics}",
            "PIPELINE_DELIVERY__SEMANTICS": semantics,
            "PIPELINE_DELIVERY__ATOMICITY": "lane",
        }
        settings = load(self._settings_file, {**os.environ, **environ})
        provision(settings, lambda _: None)
        starts = ends_of(settings)
        for number, nth in enumerate(KILLS, start=1):
            gate = Gate(folder / f"gate-{number}", PLACES[semantics], nth)
            self._kill_at(gate, {**environ, **gate.environ}, folder)
            self._say(f"{semantics}: SIGKILL to run {number} {gate.place}")
        self._say(f"{semantics}: run {len(KILLS) + 1} to the end of the log, then the audit")
        job = self._start(environ, folder, "--until-caught-up")
        if job.wait():
            raise PipelineError(self._tail(folder, f"the job ended with exit code {job.returncode}"))
        return run_audit(settings, self._console, start_offsets=starts)

    def _kill_at(self, gate: Gate, environ: dict[str, str], folder: Path) -> None:
        """Start the job, and kill it when one of its workers stands at the gate."""
        job = self._start(environ, folder)
        deadline = time.monotonic() + STALL_SECONDS
        while not gate.holds():
            if job.poll() is not None:
                raise PipelineError(self._tail(folder, f"the job ended by itself, exit code {job.returncode}"))
            if time.monotonic() > deadline:
                signal_all(tree(job.pid), signal.SIGKILL)
                raise PipelineError(self._tail(folder, f"the job did not come to its gate in {STALL_SECONDS:.0f} s"))
            time.sleep(SHOW_SECONDS)
        signal_all(tree(job.pid), signal.SIGKILL)
        job.wait()


def ends_of(settings: Settings) -> dict[tuple[str, int], int]:
    """Where the next app's part of each output partition begins; nothing is open in them."""
    topics = Topics(settings.output_bootstrap)
    names = [*settings.output.topics, settings.output.dead_letter_topic]
    found = {}
    for name, topic in topics.describe(names).items():
        for partition, end in topics.offsets(name, range(topic.partitions), OffsetSpec.latest()).items():
            found[name, partition] = end
    return found


def table_of(results: Mapping[str, AuditResult]) -> Table:
    """One row for each delivery."""
    table = Table("delivery", *COLUMNS)
    for column in table.columns[1:]:
        column.justify = "right"
    for semantics, result in results.items():
        table.add_row(semantics, *(str(getattr(result, column)) for column in COLUMNS))
    return table


def as_meant(results: Mapping[str, AuditResult]) -> bool:
    """Whether each delivery kept its promise, and the weaker ones show that they promise less."""
    shown = {
        "exactly-once": results["exactly-once"].exact,
        "at-least-once": results["at-least-once"].duplicated > 0,
        "at-most-once": results["at-most-once"].lost > 0,
    }
    return all(shown.values()) and all(result.kept and result.caught_up for result in results.values())
