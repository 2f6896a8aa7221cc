"""The fault report tells what was seen, and nothing better."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import run
from tests.faults.report import Outcome, render

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
