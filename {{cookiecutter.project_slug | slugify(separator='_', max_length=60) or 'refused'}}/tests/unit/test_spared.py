"""What tasks are spared: memory that was freed is not asked for anew, page by page."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Columns of some hundred kilobytes, made and dropped as those of a ledger are; prints how many pages were handed out.
COLUMNS = """
import resource
import numpy as np
{before}
def rounds(count):
    for _ in range(count):
        column = np.arange(40_000)
        [column + number for number in range(10)]
rounds(20)
started = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(100)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - started)
"""
SPARED = "from pipeline.flow.spared import spare_tasks; spare_tasks()"


def pages(before: str) -> int:
    """Return how many pages the system hands out for them."""
    done = subprocess.run(
        [sys.executable, "-c", COLUMNS.format(before=before)], capture_output=True, text=True, check=True, timeout=120
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems have other ways")
def test_a_worker_keeps_the_memory_of_columns_that_it_has_dropped() -> None:
    assert 20 * pages(SPARED) < pages("")
