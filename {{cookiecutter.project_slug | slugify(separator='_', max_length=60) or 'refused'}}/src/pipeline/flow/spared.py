"""What every task of a Python worker is spared: waits, and work that PySpark does anew each time to the same outcome.

Guarantee: nothing that a task computes depends on it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import zipimport
from contextlib import suppress
from functools import cache

import pipeline.flow.whole  # noqa: F401  for what its import does: every task's function refers to this module
from pipeline.flow.prompt import read_promptly

# How long a thread may keep the others of its process from running Python: a lane that has its answer from a broker
# would wait for 5 ms, the default, behind one that judges.
SWITCH_SECONDS = 0.0005
# As it comes, glibc gives large arrays back to the system when they are freed, and has the next ones handed out page by
# page: two thirds of the time of all that numpy does with a ledger. So it is told to keep some megabytes.
MIB = 1024 * 1024
MALLOC = {
    -3: 4 * MIB,  # M_MMAP_THRESHOLD: what is larger is given back all the same
    -1: 32 * MIB,  # M_TRIM_THRESHOLD: so much may lie free at the top of an arena
    -2: 4 * MIB,  # M_TOP_PAD: by so much one grows
    -8: 4,  # M_ARENA_MAX: so many there are
}


@cache
def spare_tasks() -> None:
    """Once in a process: before its first task, and in the parent that it was forked from."""
    # PySpark has every zip on the path read anew for each task: about 100 ms of CPU.
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]
    # PySpark collects garbage after each task, and looks through all loaded modules: a fifth of a worker's time.
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    read_promptly()
    _keep_memory()


def _keep(self: zipimport.zipimporter) -> None:
    """What is on the path does not change while a job runs."""


def _keep_memory() -> None:
    """On systems with glibc; others go on as they do."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in MALLOC.items():
            mallopt(parameter, value)
