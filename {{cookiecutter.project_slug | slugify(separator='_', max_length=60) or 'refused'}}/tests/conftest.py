"""What holds for all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support.brokers import described

# Tests start Spark often and run it shortly, here and in processes of their own: what costs the least to start is the
# quickest. Not by a folder of settings: that would stand on Java's path, and the archive of classes would not fit it.
QUICK_TO_START = "--conf 'spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", QUICK_TO_START)
# How long an example takes says something of the machine, not of the product.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")


def pytest_report_header() -> str:
    """Say which Kafka the integration tests will use."""
    return described()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let failures be shown when they happen."""
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(ShownAtOnce(config), "shown-at-once")


class ShownAtOnce:
    """Shows a failure of tests side by side when it happens: a run that is cut off shows nothing at its end."""

    def __init__(self, config: pytest.Config) -> None:
        """Write where the dots are written."""
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what failed, and why."""
        if report.failed:
            self._terminal.write_line(f"\nFAILED in {report.when}: {report.nodeid}\n{report.longreprtext}")
