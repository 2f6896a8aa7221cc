"""What fault cases share: a broker behind a proxy, and what they leave for the report."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import Evidence
from tests.support.proxy import ProxiedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def proxied() -> Iterator[ProxiedBroker]:
    """Return a broker behind a frame proxy; a case leaves it running, and without rules."""
    with ProxiedBroker() as running:
        yield running


@pytest.fixture
def evidence() -> Evidence:
    """Return where a case notes its seed, restarts and seconds, for the report; see `tests/faults/run.py`.

    FAULT_SEED=<number> repeats what a run did that failed.
    """
    return Evidence(seed=int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000)))
