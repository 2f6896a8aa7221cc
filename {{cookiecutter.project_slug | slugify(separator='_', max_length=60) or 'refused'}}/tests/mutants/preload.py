"""Import this first in a process of its own, and it is broken as its parent is: by the mutant in PIPELINE_MUTANT."""

from __future__ import annotations

import os

from tests.mutants.catalogue import VARIABLE, find

if name := os.environ.get(VARIABLE):
    find(name).apply()
