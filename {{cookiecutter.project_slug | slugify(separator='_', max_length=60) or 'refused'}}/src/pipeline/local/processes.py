"""A process and all that came of it: found, and signalled by their own ids.

Guarantee: only descendants of the given process are ever signalled. Spark's Python workers are in a process group of
their own, so a signal to the job's group does not reach them.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from signal import Signals


def tree(pid: int) -> list[int]:
    """The process and its living descendants, parents first."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout  # noqa: S607
    children: defaultdict[int, list[int]] = defaultdict(list)
    for line in listing.splitlines():
        child, parent = line.split()
        children[int(parent)].append(int(child))
    found = [pid]
    for member in found:
        found += children[member]
    return found


def signal_all(pids: list[int], number: Signals) -> None:
    """Send a signal to each; one that has ended meanwhile needs none."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
