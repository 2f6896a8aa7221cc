"""The demo: payments with duplicates, a job that is killed in mid transaction, and an audit that proves the result.

Guarantee: nothing is staged. The broker is a real Kafka, the job is a process of its own that knows nothing of the
demo, SIGKILL is sent only while a transaction is seen open in the log, and the last line is the audit's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline.errors import PipelineError
from pipeline.kafka import REQUEST_SECONDS, reachable
from pipeline.lanes.provision import provision
from pipeline.lanes.topics import Topics
from pipeline.local.broker import Broker
from pipeline.local.events import send
from pipeline.local.lookout import Lookout
from pipeline.local.processes import signal_all, tree
from pipeline.local.recorder import Recorder
from pipeline.observe.show import run_audit
from pipeline.settings import KEYS, Settings, load

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.observe.audit import AuditResult

PARTITIONS = 4
# Kill once the lanes have passed these parts of the log.
KILL_AT = (0.15, 0.5)
# Small batches and transactions, so that the kills hit some of many: 5 batches, 40 transactions for the whole log.
BATCHES = 5
TRANSACTIONS = 40
# Figures move when a batch ends: a record of every second wants more and smaller ones.
RECORDED_BATCHES = 30
# A start takes 10 to 20 s on two cores; a job that has not moved on by then never will.
STALL_SECONDS = 120.0
LOOK_SECONDS = 0.005
SHOW_SECONDS = 0.2
SHOWN = 3


class Demo:
    """One demo from an empty broker to its audit."""

    def __init__(
        self, settings_file: Path, payments: int, seed: int, console: Console, record: Path | None = None
    ) -> None:
        """Nothing is started yet; `record` is the file in which the metrics of the run are kept."""
        self._settings_file = settings_file
        self._payments = payments
        self._seed = seed
        self._console = console
        self._recorder = Recorder(record)
        self._batches = BATCHES if record is None else RECORDED_BATCHES

    def run(self) -> AuditResult:
        """Run it; the caller judges by the result."""
        with ExitStack() as exits:
            folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="pipeline-demo-")))
            self._say("start a Kafka broker (KRaft, one node)")
            broker = exits.enter_context(Broker(folder / "kafka"))
            environ = self._overrides(broker.bootstrap, folder)
            settings = load(self._settings_file, {**os.environ, **environ})
            self._send(settings)
            self._say("provision topics and lanes")
            provision(settings, lambda _: None)
            with self._recorder:
                self._process(settings, environ, folder)
            self._say("audit: read everything again, and compute by brute force what must be there")
            result = run_audit(settings, self._console)
            self._recorder.mark("audit", result.line)
            return result

    def _overrides(self, bootstrap: str, folder: Path) -> dict[str, str]:
        """What the demo sets differently from the project's own settings, as anybody could: by environment."""
        return {
            **without_locks(),
            "PIPELINE_SOURCE__BOOTSTRAP": bootstrap,
            "PIPELINE_OUTPUT__BOOTSTRAP": "",
            "PIPELINE_OUTPUT__REPLICATION": "1",
            "PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER": str(self._payments // self._batches),
            "PIPELINE_TRANSACTION__CHUNK_ROWS": str(self._payments // TRANSACTIONS),
            "PIPELINE_SPARK__CHECKPOINT": str(folder / "checkpoint"),
            "PIPELINE_METRICS__PORT": str(self._recorder.port),  # a job that runs beside the demo keeps its own
        }

    def _send(self, settings: Settings) -> None:
        topics = Topics(settings.source.bootstrap)
        with reachable(topics.bootstrap, "create the source topic"):
            new = NewTopic(settings.source.topic, PARTITIONS, 1)
            topics.admin.create_topics([new])[settings.source.topic].result(REQUEST_SECONDS)
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bars:
            bar = bars.add_task("payments", total=self._payments)
            sent = send(
                settings.source.bootstrap,
                settings.source.topic,
                count=self._payments,
                seed=self._seed,
                form=settings.codec.input,
                progress=lambda done, _: bars.update(bar, completed=done),
            )
        kinds = ", ".join(f"{count} {kind}" for kind, count in sent.kinds.items())
        self._say(f"sent {sent.sent} records: {kinds}")

    def _process(self, settings: Settings, environ: dict[str, str], folder: Path) -> None:
        with Lookout(settings) as lookout:
            for number, part in enumerate(KILL_AT, start=1):
                self._run_and_kill(lookout, environ, folder, int(part * lookout.total), f"run {number}")
            if not settings.shuffled:  # there the state is in it alone
                checkpoint = Path(settings.spark.checkpoint)
                shutil.rmtree(checkpoint)
                self._recorder.mark("checkpoint deleted")
                self._say(f"deleted Spark's checkpoint ({checkpoint.name}/): the lanes know where they are")
            self._say(f"run {len(KILL_AT) + 1}: to the end of the log")
            job = self._start(environ, folder, "--until-caught-up")
            with self._bar(lookout.total) as bars:
                while job.poll() is None:
                    bars.update(bars.task_ids[0], completed=lookout.progress())
                    time.sleep(SHOW_SECONDS)
            if job.returncode:
                raise PipelineError(self._tail(folder, f"the job ended with exit code {job.returncode}"))
            self._say(f"caught up at {lookout.progress()} of {lookout.total} offsets")

    def _run_and_kill(self, lookout: Lookout, environ: dict[str, str], folder: Path, at: int, name: str) -> None:
        """Start the job, and kill it in mid transaction once it has passed a part of the log."""
        self._say(f"{name}: process, until a transaction is open beyond offset {at}")
        job = self._start(environ, folder)
        with self._bar(lookout.total) as bars:
            left = self._kill_in_transaction(lookout, job, at, folder, bars)
        self._recorder.mark("kill", f"{len(left)} partitions with an open transaction")
        names = f"{', '.join(left[:SHOWN])}{' ...' if len(left) > SHOWN else ''}"
        self._say(f"{name}: SIGKILL at {lookout.progress()} of {lookout.total} offsets; left open: {names}")

    def _kill_in_transaction(
        self, lookout: Lookout, job: subprocess.Popen[bytes], at: int, folder: Path, bars: Progress
    ) -> list[str]:
        """Freeze the job when a transaction is open; kill it if one still is; returns what it left open."""
        deadline = time.monotonic() + STALL_SECONDS
        passed = 0
        while True:
            now = lookout.progress()
            if now > passed:
                deadline, passed = time.monotonic() + STALL_SECONDS, now
            bars.update(bars.task_ids[0], completed=passed)
            if job.poll() is not None:
                raise PipelineError(self._tail(folder, f"the job ended by itself, exit code {job.returncode}"))
            if time.monotonic() > deadline:
                signal_all(tree(job.pid), signal.SIGKILL)
                raise PipelineError(self._tail(folder, f"the job made no progress for {STALL_SECONDS:.0f} s"))
            if passed >= at and lookout.open_transactions():
                frozen = tree(job.pid)
                signal_all(frozen, signal.SIGSTOP)
                if left := lookout.open_transactions():
                    signal_all(frozen, signal.SIGKILL)
                    job.wait()
                    return left
                signal_all(frozen, signal.SIGCONT)
            time.sleep(LOOK_SECONDS if passed >= at else SHOW_SECONDS)

    def _start(self, environ: dict[str, str], folder: Path, *options: str) -> subprocess.Popen[bytes]:
        """The job as anybody would start it, in a session of its own, so that SIGKILL reaches all of it at once."""
        command = [sys.executable, "-m", "pipeline", "run", "--settings", str(self._settings_file), *options]
        with (folder / "job.log").open("ab") as log:
            return subprocess.Popen(
                command, env={**os.environ, **environ}, stdout=log, stderr=log, start_new_session=True
            )

    def _bar(self, total: int) -> Progress:
        columns = (TextColumn("  offsets"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bars = Progress(*columns, console=self._console, transient=True)
        bars.add_task("offsets", total=total)
        return bars

    def _tail(self, folder: Path, what: str) -> str:
        lines = (folder / "job.log").read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        return "\n".join([f"{what}; its log ends:", *lines])

    def _say(self, line: str) -> None:
        self._console.print(f"[bold]demo[/] {line}", highlight=False)


def without_locks() -> dict[str, str]:
    """The embedded Kafka has none, whatever the project's own clusters have."""
    methods = {"security": "plaintext", "output_security": "as-source"}
    keys = [(section, key) for section in methods for key in KEYS[section]]
    return {f"PIPELINE_{section}__{key}".upper(): methods[section] if key == "method" else "" for section, key in keys}
