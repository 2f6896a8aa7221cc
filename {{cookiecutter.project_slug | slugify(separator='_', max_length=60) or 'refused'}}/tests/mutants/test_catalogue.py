"""Every mutant still fits the product, and names a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mutants.catalogue import MUTANTS
from tests.mutants.run import main

if TYPE_CHECKING:
    from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_fits_the_source_and_names_a_test_that_exists(mutant: Mutant) -> None:
    compile(mutant.source(), mutant.module, "exec")
    path, _, name = mutant.test.partition("::")
    found = {
        node.name
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert name in found


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_name_that_no_mutant_has_runs_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MUTANTS[0].name, "--help"]) == 2
    assert "no such mutant: --help" in capsys.readouterr().err
