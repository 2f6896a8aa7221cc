"""Fault points: the places where a test may hurt the pipeline.

Guarantee: as shipped, a fault point does nothing. Only a process that was started with `PIPELINE_FAULTS` set to
`module:function` calls that function with the name of the place; no setting and no file can arm one.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "PIPELINE_FAULTS"


def fault_point(place: str) -> None:
    """Do nothing, unless a test has armed this process."""
    if hit := _armed():
        hit(place)


@cache
def _armed() -> Callable[[str], object] | None:
    module, _, function = os.environ.get(VARIABLE, "").partition(":")
    return getattr(import_module(module), function) if module else None
