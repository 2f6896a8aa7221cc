"""The fault report: what was done to the pipeline, and what came of it."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median

from confluent_kafka import libversion
from tests.support.arena import RECOVERY_SECONDS

from pipeline import __version__
from pipeline.local.jars import read_pins

# C2 before C10, and the letters in their own order.
CASE = re.compile(r"(?P<letter>[A-Z]+)(?P<number>\d+)")
VERDICTS = {"passed": "exact", "failed": "**FAILED**", "skipped": "not run"}

INTRODUCTION = """\
Written by `make faults`. Each row is a test that hurt the pipeline on a real broker, and then demanded that every
effect is there exactly once, in order, with true counters and no open transaction, or that the job stopped with the
one line it should. Recovery: seconds from the end of the fault until the job, started again by a supervisor if it
ended, had caught up. Restarts: how often it ended.""".splitlines()


@dataclass(frozen=True)
class Outcome:
    """What came of one test."""

    test: str
    cases: list[str]
    verdict: str
    seconds: float
    seed: int | None = None
    restarts: int | None = None
    recovery: float | None = None
    remark: str = ""

    @property
    def is_late(self) -> bool:
        """Whether recovery took longer than is promised; on a machine that is busy otherwise, that proves nothing."""
        return self.recovery is not None and self.recovery > RECOVERY_SECONDS

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts by case, then by test."""
        found = CASE.fullmatch(self.cases[0])
        return (found["letter"], int(found["number"]), self.test) if found else (self.cases[0], 0, self.test)

    @property
    def sentence(self) -> str:
        """The test's name, as the sentence that it is."""
        name = self.test.rpartition("::")[2].removeprefix("test_")
        name, _, given = name.partition("[")
        return name.replace("_", " ") + (f" ({given.rstrip(']')})" if given else "")


def render(outcomes: list[Outcome]) -> str:
    """Make the page."""
    counts = Counter(VERDICTS[outcome.verdict] for outcome in outcomes)
    recoveries = [outcome.recovery for outcome in outcomes if outcome.recovery is not None]
    lines = [
        "# Fault report",
        "",
        *INTRODUCTION,
        "",
        f"- {datetime.now(UTC):%Y-%m-%d}, {_versions()}",
        f"- {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        f"- {len(outcomes)} runs: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
    ]
    if recoveries:
        spread = f"median {median(recoveries):.1f} s, longest {max(recoveries):.1f} s"
        lines.append(f"- recovery of the {len(recoveries)} runs that tell it: {spread}")
    lines += ["", "| case | what | verdict | recovery, s | restarts | run, s | seed |", "|---|---|---|---|---|---|---|"]
    lines += [_row(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.order)]
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome) -> str:
    recovery = "" if outcome.recovery is None else f"{outcome.recovery:.1f}"
    verdict = VERDICTS[outcome.verdict] + (f": {outcome.remark}" if outcome.remark else "")
    if outcome.is_late:
        verdict += ", **late**"
    cells = [
        ", ".join(outcome.cases),
        outcome.sentence,
        verdict,
        recovery,
        "" if outcome.restarts is None else str(outcome.restarts),
        f"{outcome.seconds:.0f}",
        "" if outcome.seed is None else str(outcome.seed),
    ]
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _versions() -> str:
    kafka = read_pins()["broker"].roots[0].rpartition(":")[2]
    return ", ".join(
        [
            f"pipeline {__version__}",
            f"Kafka {kafka}",
            f"PySpark {version('pyspark')}",
            f"librdkafka {libversion()[0]}",
            f"Python {platform.python_version()}",
        ]
    )
