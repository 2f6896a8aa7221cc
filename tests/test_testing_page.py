"""The page on testing is true: it names every mutant, with the test that must fail."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import PROJECT, ROOT

LIST = "from tests.mutants.catalogue import MUTANTS\nfor mutant in MUTANTS: print(mutant.name, mutant.test)"


def test_the_testing_page_lists_every_mutant_with_its_test() -> None:
    """No more, no fewer, and each with the right test."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| `(test_\w+\.py::test_\w+)` \|$", page, re.MULTILINE))

    done = subprocess.run([sys.executable, "-c", LIST], cwd=PROJECT, check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert listed == {(name, test.rpartition("/")[2]) for name, test in lines}
    assert listed
