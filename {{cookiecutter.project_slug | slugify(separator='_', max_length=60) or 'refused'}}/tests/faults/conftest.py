"""What fault cases share: a broker behind a proxy, and what they leave for the report."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import Evidence
from tests.support.proxy import ProxiedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def proxied() -> Iterator[ProxiedBroker]:
    """Return a broker behind a frame proxy; a case leaves it running, and without rules."""
    with ProxiedBroker() as running:
        yield running


@pytest.fixture
def evidence(record_property: Callable[[str, object], None]) -> Iterator[Evidence]:
    """Return where a case notes its seed, restarts and seconds; the report is made of these, also when it fails."""
    found = Evidence(seed=random.SystemRandom().randrange(1_000_000))
    yield found
    for name, value in vars(found).items():
        record_property(name, value)
