"""The fault report: what was done to the pipeline, and what came of it.

Each row tells its date. A run of some cases puts its rows in place of the older ones of these tests, and leaves the
others as they stand; so the page holds the last run of each, and says when that was.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import libversion
from tests.support.arena import RECOVERY_SECONDS

from pipeline import __version__
from pipeline.local.jars import read_pins

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# C2 before C10, and the letters in their own order.
CASE = re.compile(r"(?P<letter>[A-Z]+)(?P<number>\d+)")
EXACT = "exact"
VERDICTS = {"passed": EXACT, "failed": "**FAILED**", "skipped": "not run"}

INTRODUCTION = """\
Written by `make faults`. Each row is a test that hurt the pipeline on a real broker, and then demanded that every
effect is there exactly once, in order, with true counters and no open transaction, or that the job stopped with the
one line it should. Recovery: seconds from the end of the fault until the job, started again by a supervisor if it
ended, had caught up. Restarts: how often it ended. Date: of this row's run; a run of some cases leaves other rows
as they are.""".splitlines()
HEADINGS = ("case", "what", "verdict", "recovery, s", "restarts", "run, s", "seed", "date")
# What this module writes above the table; any other remark there was written by hand, and is kept.
WRITTEN_HERE = re.compile(r"- (?:(?:last run: )?\d{4}-\d\d-\d\d, pipeline |\d+ cores, |\d+ runs: |recovery of the )")
DATED = re.compile(r"^- (?:last run: )?(\d{4}-\d\d-\d\d), ", re.MULTILINE)


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
    date: str = ""

    @property
    def is_late(self) -> bool:
        """Whether recovery took longer than is promised; on a machine that is busy otherwise, that proves nothing."""
        return self.recovery is not None and self.recovery > RECOVERY_SECONDS


def sentence(test: str) -> str:
    """Return a test's name as the sentence that it is."""
    name = test.rpartition("::")[2].removeprefix("test_")
    name, _, given = name.partition("[")
    return name.replace("_", " ") + (f" ({given.rstrip(']')})" if given else "")


class Row(NamedTuple):
    """A row of the table, as it stands there; `case` and `what` tell whose it is."""

    case: str
    what: str
    verdict: str
    recovery: str
    restarts: str
    seconds: str
    seed: str
    date: str

    @classmethod
    def of(cls, outcome: Outcome) -> Row:
        """Tell what came of a test."""
        verdict = VERDICTS[outcome.verdict] + (f": {outcome.remark}" if outcome.remark else "")
        cells = [
            ", ".join(outcome.cases),
            sentence(outcome.test),
            verdict + (", **late**" if outcome.is_late else ""),
            "" if outcome.recovery is None else f"{outcome.recovery:.1f}",
            "" if outcome.restarts is None else str(outcome.restarts),
            f"{outcome.seconds:.0f}",
            "" if outcome.seed is None else str(outcome.seed),
            outcome.date,
        ]
        return cls(*(cell.replace("|", "/") for cell in cells))

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts by case, then by what was done."""
        first = self.case.partition(",")[0]
        found = CASE.fullmatch(first)
        return (found["letter"], int(found["number"]), self.what) if found else (first, 0, self.what)

    @property
    def kind(self) -> str:
        """The verdict without its remark."""
        return self.verdict.partition(":")[0].partition(",")[0]


class Page(NamedTuple):
    """What an earlier report holds."""

    rows: Sequence[Row] = ()
    remarks: Sequence[str] = ()

    @classmethod
    def parse(cls, text: str) -> Page:
        """Read it; rows without a date are of the day that the page names."""
        dated = DATED.search(text)
        above, _, table = text.partition("\n| case |")
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
        rows = [Row(*(row if len(row) == len(HEADINGS) else [*row, dated[1] if dated else ""])) for row in cells if row]
        listed = above.partition("\n- ")[2]
        remarks = [f"- {one}".rstrip() for one in listed.split("\n- ")] if listed else []
        return cls(rows, [one for one in remarks if not WRITTEN_HERE.match(one)])


NO_PAGE = Page()


def render(outcomes: Iterable[Outcome], earlier: Page = NO_PAGE) -> str:
    """Make the page: these rows, in place of the earlier ones of the same tests."""
    rows = {(row.case, row.what): row for row in (*earlier.rows, *map(Row.of, outcomes))}
    counts = Counter(row.kind for row in rows.values())
    recoveries = [float(row.recovery) for row in rows.values() if row.recovery]
    lines = [
        "# Fault report",
        "",
        *INTRODUCTION,
        "",
        f"- last run: {today()}, {_versions()}",
        f"- {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        f"- {len(rows)} runs: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
    ]
    if recoveries:
        spread = f"median {median(recoveries):.1f} s, longest {max(recoveries):.1f} s"
        lines.append(f"- recovery of the {len(recoveries)} runs that tell it: {spread}")
    lines += [*earlier.remarks, "", _line(HEADINGS), "|---" * len(HEADINGS) + "|"]
    lines += [_line(row) for row in sorted(rows.values(), key=lambda row: row.order)]
    return "\n".join(lines) + "\n"


def today() -> str:
    """Return the date of a run."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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
