"""Break the product before pytest loads any of it: `pytest -p tests.mutants.plugin`, with PIPELINE_MUTANT set."""

from __future__ import annotations

import os

import pytest
from tests.mutants.catalogue import VARIABLE, find


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    find(os.environ[VARIABLE]).apply()
