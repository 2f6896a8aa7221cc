"""The fault report tells what was seen, and nothing better."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import run
from tests.faults.report import Outcome, Page, render

if TYPE_CHECKING:
    from pathlib import Path

CASES = """
import pytest

@pytest.mark.fault("C1")
def test_it_passes(): pass

@pytest.mark.fault("C2")
def test_it_fails(): assert False

@pytest.mark.fault("C2")
@pytest.mark.long
def test_it_is_skipped(): pytest.skip("no such tool here")

def test_it_is_no_case(): pass
"""

INI = """
[pytest]
addopts = --import-mode=importlib
markers =
    fault
    long
"""


def outcome(test: str, *cases: str, **given: Any) -> Outcome:
    """Return what came of a test that passed, unless told otherwise."""
    return Outcome(f"tests/faults/x.py::{test}", list(cases), **{"verdict": "passed", "seconds": 1.0, **given})


def rows(page: str) -> list[list[str]]:
    """Return the cells of the report's table."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_rows_stand_in_the_order_of_their_cases_with_sentences_for_names() -> None:
    page = render([outcome("test_b[C10-kill]", "C10"), outcome("test_the_job_lives", "C2"), outcome("test_a", "A1")])
    assert [row[:2] for row in rows(page)] == [["A1", "a"], ["C2", "the job lives"], ["C10", "b (C10-kill)"]]


def test_a_failure_a_skip_and_a_late_recovery_are_said() -> None:
    page = render(
        [
            outcome("test_a", "A1", verdict="failed"),
            outcome("test_b", "A2", verdict="skipped", remark="needs root"),
            outcome("test_c", "A3", recovery=60.5, restarts=2, seed=7),
        ]
    )
    assert [row[2:5] for row in rows(page)] == [
        ["**FAILED**", "", ""],
        ["not run: needs root", "", ""],
        ["exact, **late**", "60.5", "2"],
    ]
    assert "3 runs: 1 **FAILED**, 1 not run, 1 exact" in page


def test_a_run_of_some_cases_leaves_the_other_rows_with_their_dates_and_what_was_remarked_by_hand() -> None:
    first = [outcome("test_a", "A1", date="2026-01-01", recovery=3.0), outcome("test_b", "A2", date="2026-01-01")]
    page = render(first).replace("\n\n| case", "\n- A1 was run twice,\n  by hand\n\n| case")
    again = [outcome("test_b", "A2", date="2026-02-02", verdict="failed"), outcome("test_c", "A2", date="2026-02-02")]
    merged = render(again, Page.parse(page))
    assert [(row[0], row[1], row[2], row[-1]) for row in rows(merged)] == [
        ("A1", "a", "exact", "2026-01-01"),
        ("A2", "b", "**FAILED**", "2026-02-02"),
        ("A2", "c", "exact", "2026-02-02"),
    ]
    assert "\n- A1 was run twice,\n  by hand\n" in merged
    assert "- 3 runs: 2 exact, 1 **FAILED**\n" in merged
    assert "recovery of the 1 runs" in merged
    assert render([], Page.parse(merged)) == merged


def test_rows_of_a_page_that_has_no_dates_are_of_the_day_it_names() -> None:
    page = (
        "# Fault report\n\n- 2026-03-03, pipeline 0.1.0\n\n| case | what |\n|---|---|\n| A1 | a | exact | | | 1 | 7 |\n"
    )
    assert [(row.what, row.seed, row.date) for row in Page.parse(page).rows] == [("a", "7", "2026-03-03")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with some cases in it, as the working folder."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_cases.py").write_text(CASES, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdicts(folder: Path) -> list[tuple[str, str]]:
    """Return each line that was noted: the test's name, and its verdict."""
    noted = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["test"].rpartition("::")[2], line["verdict"]) for line in noted]


def start(*arguments: str) -> int:
    """Run the cases of the working folder."""
    return run.main([*arguments, "--report", "report.md", "-p", "no:cacheprovider", "-q"])


def test_every_case_is_noted_once_and_a_failure_is_the_exit_code(project: Path) -> None:
    assert start() == 1
    assert verdicts(project) == [
        ("test_it_passes", "passed"),
        ("test_it_fails", "failed"),
        ("test_it_is_skipped", "skipped"),
    ]
    assert len(rows((project / "report.md").read_text(encoding="utf-8"))) == 3


@pytest.mark.thorough
def test_what_has_passed_is_left_out_when_a_run_is_resumed(project: Path) -> None:
    assert start("--only", "C1") == 0
    assert verdicts(project) == [("test_it_passes", "passed")]
    assert start("--resume", "--quick") == 1
    assert verdicts(project) == [("test_it_passes", "passed"), ("test_it_fails", "failed")]
    assert start("--resume", "--only", "C1") == 0
    assert len(rows((project / "report.md").read_text(encoding="utf-8"))) == 2


@pytest.mark.thorough
def test_a_case_that_is_run_alone_joins_the_rows_that_are_there(project: Path) -> None:
    assert start("--only", "C1") == 0
    assert start("--only", "C2") == 1
    names = ["it passes", "it fails", "it is skipped"]
    assert sorted(row[1] for row in rows((project / "report.md").read_text(encoding="utf-8"))) == sorted(names)
    (project / "report.jsonl").unlink()
    assert start("--missing") == 1
    assert verdicts(project) == [("test_it_fails", "failed"), ("test_it_is_skipped", "skipped")]
    assert start() == 1
    assert len(rows((project / "report.md").read_text(encoding="utf-8"))) == len(names)


@pytest.mark.thorough
def test_the_cases_can_be_listed_and_none_is_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("--list") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "\t" in line] == [
        "C1\ttests/test_cases.py::test_it_passes",
        "C2\ttests/test_cases.py::test_it_fails",
        "C2\ttests/test_cases.py::test_it_is_skipped",
    ]
    assert not (project / "report.md").exists()
