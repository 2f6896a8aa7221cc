"""Run the fault cases and write the report.

Usage: python -m tests.faults.run [--quick] [--only C4,E2] [--missing] [--resume] [--list] [--report PATH]

Each case that ends adds a line to a file beside the report, so that `--resume` goes on with those that have not
passed yet. A run of all cases writes the report anew; one of some puts its rows among those that are there, and
`--missing` runs what has no good row there. Exit code 0 only if every case passed that was to run, and recovered in
time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.report import EXACT, Outcome, Page, render, sentence, today

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

REPORT = Path("docs/fault-report.md")


class Recorder:
    """Notes what comes of each case; a plugin of pytest."""

    def __init__(self, lines: Path, only: set[str], passed: set[str], told: set[tuple[str, str]]) -> None:
        self._lines = lines
        self._only = only
        self._passed = passed
        self._told = told
        self._cases: dict[str, list[str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what was not asked for, what has passed before, and what the report tells already."""
        for item in items:
            self._cases[item.nodeid] = [str(mark.args[0]) for mark in item.iter_markers("fault")]
        left_out = [item for item in items if not self._is_due(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    def _is_due(self, test: str) -> bool:
        cases = self._cases[test]
        asked_for = not self._only or self._only & set(cases)
        row = (", ".join(cases), sentence(test))
        return bool(asked_for) and test not in self._passed and row not in self._told

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
            date=today(),
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


class Lister:
    """Prints each case with its test, and runs none; a plugin of pytest."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Tell what was found."""
        for item in items:
            cases = ",".join(str(mark.args[0]) for mark in item.iter_markers("fault"))
            sys.stdout.write(f"{cases}\t{item.nodeid}\n")
        items.clear()


def main(arguments: list[str]) -> int:
    """Run, and write the report whatever came of it."""
    parser = argparse.ArgumentParser(prog="make faults", description="Run the fault cases and write the report.")
    parser.add_argument("--quick", action="store_true", help="only those that `make test` runs as well")
    parser.add_argument("--only", default="", help="cases, for example C4,E2")
    parser.add_argument("--missing", action="store_true", help="those that have no good row in the report yet")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed before")
    parser.add_argument("--list", action="store_true", help="print the cases and their tests, and run none")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it (default: {REPORT})")
    asked, rest = parser.parse_known_args(arguments)
    marks = "fault and not long" if asked.quick else "fault"
    if asked.list:
        code = pytest.main(["-q", "-m", marks, "tests", *rest], plugins=[Lister()])
        return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)
    lines = asked.report.with_suffix(".jsonl")
    if not asked.resume:
        lines.unlink(missing_ok=True)
    passed = {outcome.test for outcome in outcomes(lines) if outcome.verdict == "passed"}
    only = {case for case in asked.only.split(",") if case}
    is_part = asked.quick or only or asked.missing or asked.resume
    earlier = Page.parse(asked.report.read_text("utf-8")) if is_part and asked.report.is_file() else Page()
    told = {(row.case, row.what) for row in earlier.rows if asked.missing and row.verdict == EXACT}
    code = int(pytest.main(["-v", "-m", marks, "tests", *rest], plugins=[Recorder(lines, only, passed, told)]))
    found = list(outcomes(lines))
    asked.report.write_text(render(found, earlier), encoding="utf-8")
    late = [outcome.test for outcome in found if outcome.is_late]
    sys.stdout.write("".join(f"{test}: recovered late\n" for test in late) + f"report: {asked.report}\n")
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and (passed or told):
        code = 0  # there may be nothing left to run
    return code or int(bool(late))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
