"""One real broker for all integration tests of a session; every test uses fresh topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Return the shared broker: one node. A test that kills, pauses or restarts nodes starts its own."""
    with Broker() as running:
        yield running
