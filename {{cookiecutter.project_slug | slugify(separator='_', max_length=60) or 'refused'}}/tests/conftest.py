"""What holds for all tests."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from tests.support.brokers import described

# For Spark in this process and in those of whole jobs.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "support" / "spark-conf"))
# How long an example takes says something of the machine, not of the product.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


def pytest_report_header() -> str:
    """Say which Kafka the integration tests will use."""
    return described()
