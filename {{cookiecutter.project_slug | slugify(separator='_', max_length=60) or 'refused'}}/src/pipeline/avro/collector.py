"""Batches without Python's cycle collector: a batch makes tens of thousands of dicts and frees them all by itself.

Guarantee: nothing but time changes. The collector would look through them again and again in between, for nearly half
of the time that fastavro takes; it is on again after each batch, whose size is bounded.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Switch it off, if it is on."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
