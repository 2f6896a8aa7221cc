"""Every mutant still fits the product, and names a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mutants.catalogue import MUTANTS

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
