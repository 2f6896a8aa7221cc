"""Run each mutant's test, on the sound product and on the broken one: it must pass, and it must fail.

Usage: python -m tests.mutants.run [name ...]; exit code 0 only if every mutant was caught, 2 if there is none of
that name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tests.mutants.catalogue import MUTANTS, VARIABLE

if TYPE_CHECKING:
    from tests.mutants.mutant import Mutant

# A mutant may hang the product; pytest's own limit is per test and longer.
SECONDS = 180
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-rfE", "--timeout=100", "-p", "no:cacheprovider")
REASON_CHARACTERS = 80
# Failed in its own right: an error of a fixture, or of collection, proves nothing.
FAILED = re.compile(r"^FAILED .+?(?: - (?P<reason>.*))?$", re.MULTILINE)
ERROR = re.compile(r"^ERROR ", re.MULTILINE)


def main(names: list[str]) -> int:
    """Run the mutants and print the table."""
    if unknown := sorted(set(names) - {mutant.name for mutant in MUTANTS}):
        sys.stderr.write(f"no such mutant: {', '.join(unknown)}; their names are in tests/mutants/catalogue.py\n")
        return 2
    mutants = [mutant for mutant in MUTANTS if mutant.name in names or not names]
    console = Console(width=200)
    tests = sorted({mutant.test for mutant in mutants})
    code, said = _pytest(tests)
    if code:
        console.print(said, markup=False)
        console.print("the sound product fails these tests: no mutant was run", style="red")
        return 1
    table = Table("mutant", "test that must fail", "outcome", "seconds", "why it failed")
    caught = 0
    for mutant in mutants:
        began = time.monotonic()
        reason = _caught(mutant)
        caught += reason is not None
        outcome = "[red]survived[/]" if reason is None else "caught"
        seconds = f"{time.monotonic() - began:.0f}"
        table.add_row(mutant.name, mutant.test.rpartition("::")[2], outcome, seconds, escape(reason or ""))
        console.print(f"{mutant.name}: {outcome} after {seconds} s")
    console.print(table)
    console.print(f"{caught} of {len(mutants)} mutants caught; the sound product passes all {len(tests)} tests")
    return 0 if caught == len(mutants) else 1


def _caught(mutant: Mutant) -> str | None:
    """Return why the mutant's test failed, or None if it did not fail in its own right."""
    code, said = _pytest(["-p", "tests.mutants.plugin", mutant.test], {VARIABLE: mutant.name})
    failed = FAILED.search(said)
    if code != 1 or failed is None or ERROR.search(said):
        return None
    return (failed["reason"] or "failed")[:REASON_CHARACTERS]


def _pytest(arguments: list[str], environ: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [*PYTEST, *arguments],
        env={**os.environ, "COLUMNS": "500", **(environ or {})},  # wide enough for the reason behind a test's name
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS * (1 if environ else 5),
        check=False,
    )
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
