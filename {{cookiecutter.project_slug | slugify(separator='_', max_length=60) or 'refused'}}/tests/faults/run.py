"""Run the fault cases and write the report.

Usage: python -m tests.faults.run [--quick] [--only C4,E2] [--resume] [--report docs/fault-report.md]

Each case that ends adds a line to a file beside the report, so that `--resume` goes on with those that have not
passed yet. Exit code 0 only if every case passed that was to run, and recovered in time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.report import Outcome, render

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

REPORT = Path("docs/fault-report.md")


class Recorder:
    """Notes what comes of each case; a plugin of pytest."""

    def __init__(self, lines: Path, only: set[str], passed: set[str]) -> None:
        self._lines = lines
        self._only = only
        self._passed = passed
        self._cases: dict[str, list[str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what was not asked for, and what has passed before."""
        for item in items:
            self._cases[item.nodeid] = [str(mark.args[0]) for mark in item.iter_markers("fault")]
        left_out = [item for item in items if not self._is_due(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def _is_due(self, test: str) -> bool:
        asked_for = not self._only or self._only & set(self._cases[test])
        return bool(asked_for) and test not in self._passed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the outcome of a test, once: of its call, or of what kept it from being called."""
        report = yield
        if report.when == "call" or report.outcome != "passed":
            self._note(item, report)
        return report

    def _note(self, item: pytest.Item, report: pytest.TestReport) -> None:
        told = getattr(item, "funcargs", {}).get("evidence")
        skipped = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        outcome = Outcome(
            test=report.nodeid,
            cases=self._cases[report.nodeid],
            verdict=report.outcome,
            seconds=round(report.duration, 1),
            remark=skipped.removeprefix("Skipped: "),
            **(vars(told) if told else {}),
        )
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(vars(outcome))}\n")


def outcomes(lines: Path) -> Iterator[Outcome]:
    """What is known of each test by now: the last line of each."""
    found: dict[str, Outcome] = {}
    if lines.is_file():
        for line in lines.read_text(encoding="utf-8").splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.test] = outcome
    yield from found.values()


def main(arguments: list[str]) -> int:
    """Run, and write the report whatever came of it."""
    parser = argparse.ArgumentParser(prog="make faults", description="Run the fault cases and write the report.")
    parser.add_argument("--quick", action="store_true", help="only those that `make test` runs as well")
    parser.add_argument("--only", default="", help="cases, for example C4,E2")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed before")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it (default: {REPORT})")
    asked, rest = parser.parse_known_args(arguments)
    lines = asked.report.with_suffix(".jsonl")
    if not asked.resume:
        lines.unlink(missing_ok=True)
    passed = {outcome.test for outcome in outcomes(lines) if outcome.verdict == "passed"}
    only = {case for case in asked.only.split(",") if case}
    marks = "fault and not long" if asked.quick else "fault"
    code = int(pytest.main(["-v", "-m", marks, "tests", *rest], plugins=[Recorder(lines, only, passed)]))
    found = list(outcomes(lines))
    asked.report.write_text(render(found), encoding="utf-8")
    late = [outcome.test for outcome in found if outcome.is_late]
    sys.stdout.write("".join(f"{test}: recovered late\n" for test in late) + f"report: {asked.report}\n")
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and passed:
        code = 0  # with --resume there may be nothing left to run
    return code or int(bool(late))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
