"""Java's best compiler gives way to the batches: while cores are scarce it has what they leave.

What it makes pays off in the end, but for the first minutes it takes a quarter of a core, in pieces of up to a second,
whatever waits for that core meanwhile.

Guarantee: nothing that is computed depends on it. It is never starved: on a full machine it has about a tenth.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The name as Linux cuts it; elsewhere there is no such folder.
BEST_COMPILER = b"C2 CompilerThre"
THREADS = "/proc/{}/task"
# A core that is wanted by both goes to a thread of plain niceness for nine tenths.
NICE = 10


def give_way(spark: SparkSession) -> None:
    """Let the compiler's threads be nice; they may be so already, and more of them come only where cores are many."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001
    folder = Path(THREADS.format(jvm.java.lang.ProcessHandle.current().pid()))
    for thread in folder.glob("*"):
        with suppress(OSError):  # it has ended meanwhile
            number = int(thread.name)
            if (thread / "comm").read_bytes().strip() == BEST_COMPILER:
                os.setpriority(os.PRIO_PROCESS, number, max(NICE, os.getpriority(os.PRIO_PROCESS, number)))
