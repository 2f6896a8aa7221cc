"""One real broker for all integration tests of a session; every test uses fresh topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.brokers import shared_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.local.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Return the shared broker: one node, of the source that KAFKA names. A test that hurts nodes starts its own."""
    with shared_broker() as running:
        yield running
