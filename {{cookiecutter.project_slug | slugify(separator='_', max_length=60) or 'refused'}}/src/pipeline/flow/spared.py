"""What every task of a Python worker is spared: waits, and work that PySpark does anew each time to the same outcome.

Guarantee: nothing that a task computes depends on it.
"""

from __future__ import annotations

import gc
import sys
import zipimport
from functools import cache

import pipeline.flow.whole  # noqa: F401  for what its import does: every task's function refers to this module
from pipeline.flow.prompt import read_promptly

# How long a thread may keep the others of its process from running Python: a lane that has its answer from a broker
# would wait for 5 ms, the default, behind one that judges.
SWITCH_SECONDS = 0.0005


@cache
def spare_tasks() -> None:
    """Once in a process: before its first task, and in the parent that it was forked from."""
    # PySpark has every zip on the path read anew for each task: about 100 ms of CPU.
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]
    # PySpark collects garbage after each task, and looks through all loaded modules: a fifth of a worker's time.
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    read_promptly()


def _keep(self: zipimport.zipimporter) -> None:
    """What is on the path does not change while a job runs."""
