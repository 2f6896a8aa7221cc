"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from tests.support.brokers import described

# How long an example takes says something of the machine, not of the product.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


def pytest_report_header() -> str:
    """Say which Kafka the integration tests will use."""
    return described()
