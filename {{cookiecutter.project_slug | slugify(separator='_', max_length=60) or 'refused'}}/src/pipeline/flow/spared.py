"""What every task of a Python worker is spared: work that PySpark does anew each time, and whose outcome never changes.

Guarantee: nothing that a task computes depends on it.
"""

from __future__ import annotations

import gc
import zipimport
from functools import cache


@cache
def spare_tasks() -> None:
    """Once in a process: before its first task, and in the parent that it was forked from."""
    # PySpark has every zip on the path read anew for each task: about 100 ms of CPU.
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]
    # PySpark collects garbage after each task, and looks through all loaded modules: a fifth of a worker's time.
    gc.freeze()


def _keep(self: zipimport.zipimporter) -> None:
    """What is on the path does not change while a job runs."""
