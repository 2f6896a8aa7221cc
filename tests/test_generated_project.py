"""Every supported project passes its own checks and unit tests, with its own commands; two pass all their tests.

They share the virtual environment that runs these tests, and a cache of mypy: only the answers differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from answer_sets import SUPPORTED
from conftest import outside_make

if TYPE_CHECKING:
    from conftest import Bake


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", SUPPORTED)
def test_the_project_passes_its_own_checks_and_unit_tests(
    case: str, bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make check unit`, as its user would; what is thorough says nothing of the answers, and is run once, below."""
    make(bake(tmp_path, SUPPORTED[case]), "check", "unit", "ARGS=-m 'not thorough'", case=case, capfd=capfd)


@pytest.mark.timeout(300)
def test_a_new_user_changes_the_transform_and_its_test_and_runs_it_without_kafka(
    bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the README says it: edit the two files, `make transform`."""
    project = bake(tmp_path)
    edit(project / "src/pipeline/flow/transform.py", 'Decimal("0.01")', 'Decimal("0.02")')
    edit(project / "tests/spark/test_transform.py", 'Decimal("2.5")', "Decimal(5)")
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert "Edit `transform.py`" in readme
    assert "Run its test: `make transform`." in readme

    make(project, "transform", case="default", capfd=capfd)


def edit(path: Path, old: str, new: str) -> None:
    """Replace what stands there once."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.whole
# A bound for what hangs: 17 to 22 minutes are usual, and a machine may be at a third of its speed.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", ["default", "minimal"])
def test_the_project_passes_all_its_own_tests(
    case: str, bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make test`, on a real broker; the project that most users make, and the one with the fewest files."""
    make(bake(tmp_path, SUPPORTED[case]), "test", case=case, capfd=capfd)


def make(project: Path, *goals: str, case: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Run goals in a project; all is shown while it runs, unless others run beside it."""
    venv = Path(sys.prefix)
    command = ["make", "--no-print-directory", "-C", str(project), f"VENV={venv}", "-o", f"{venv}/.ready", *goals]
    environ = outside_make()
    beside = os.environ.get("PYTEST_XDIST_WORKER", "")
    if beside and "MYPY_CACHE_DIR" in environ:
        environ["MYPY_CACHE_DIR"] += f"-{beside}"  # two that write one cache at once may spoil it

    with nullcontext() if beside else capfd.disabled():
        sys.stdout.write(f"\n-- {case} project: make {' '.join(goals)}\n")
        sys.stdout.flush()
        done = subprocess.run(command, env=environ, check=False)

    assert done.returncode == 0
