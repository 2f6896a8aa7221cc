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


@pytest.mark.whole
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("case", ["default", "minimal"])
def test_the_project_passes_all_its_own_tests(
    case: str, bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make test`, on a real broker; the largest and the smallest set of files."""
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
