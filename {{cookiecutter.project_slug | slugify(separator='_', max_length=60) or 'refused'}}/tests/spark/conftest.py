"""One local Spark for all tests that need it, and no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.flow.session import session
from pipeline.settings import build

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def spark() -> SparkSession:
    """Return Spark as a job has it: the one that runs in this process, or a new one if another test has ended it."""
    settings = {
        "app": {"id": "tests"},
        "source": {"bootstrap": "localhost:1", "topic": "source"},
        "output": {"topics": ("out",), "dead_letter_topic": "dead"},
        "spark": {"master": "local[2,4]"},
    }
    return session(build(settings))
