"""The page on testing is true: it names every mutant, with the test that must fail; the fault report lacks no case.

And no test takes what all threads of the tests share.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

from conftest import PROJECT, ROOT

# Imports every test, on a machine that may be busy.
LIST_SECONDS = 600
LIST = "from tests.mutants.catalogue import MUTANTS\nfor mutant in MUTANTS: print(mutant.name, mutant.test)"


def test_the_testing_page_lists_every_mutant_with_its_test() -> None:
    """No more, no fewer, and each with the right test."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| `(test_\w+\.py::test_\w+)` \|$", page, re.MULTILINE))

    done = subprocess.run([sys.executable, "-c", LIST], cwd=PROJECT, check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert listed == {(name, test.rpartition("/")[2]) for name, test in lines}
    assert listed


def test_every_fault_case_has_a_row_in_the_fault_report_and_every_row_is_of_a_case() -> None:
    """Or is said not to have been run: `make faults ARGS=--missing` runs it, and adds its rows."""
    page = (ROOT / "docs/fault-report.md").read_text(encoding="utf-8")
    told = {
        case for row in re.findall(r"^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|", page, re.MULTILINE) for case in row.split(", ")
    }

    command = [sys.executable, "-m", "tests.faults.run", "--list", "-p", "no:cacheprovider"]
    environ = os.environ | {"PYTHONPATH": str(PROJECT / "src")}
    done = subprocess.run(
        command, cwd=PROJECT, env=environ, check=True, capture_output=True, text=True, timeout=LIST_SECONDS
    )
    listed = [line.partition("\t")[0] for line in done.stdout.splitlines() if "\t" in line]
    cases = {case for line in listed for case in line.split(",")}
    assert len(cases) > 50, done.stdout
    pending = set(re.findall(r"[A-Z]\d+", "".join(re.findall(r"^- Not run yet: (.*)$", page, re.MULTILINE))))
    assert cases - told == pending, "neither a row, nor said to be missing: make faults ARGS=--missing"
    assert told - cases == set(), "a row of no test"


def test_no_test_puts_its_own_clock_in_the_place_of_everybodys() -> None:
    """A patch of `module.time.sleep` is one of `time.sleep` for every thread: once, a thread of another test got it."""
    patched = re.compile(r'"[\w.]+\.time\.\w+"|setattr\(time,')
    found = [
        f"{path.relative_to(PROJECT)}: {match[0]}"
        for path in sorted(PROJECT.rglob("tests/**/*.py"))
        for match in patched.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
