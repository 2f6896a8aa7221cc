"""Record batches from Spark, joined to fewer: what is done for each of them then costs little for a row.

Guarantee: every row as it came, in order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Record batches are joined to so many rows or bytes, but none waits for longer.
JOINED_ROWS = 10_000
JOINED_BYTES = 16 * 1024 * 1024
JOINED_SECONDS = 0.2


def joined(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows in larger batches."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if not held:
            started = time.monotonic()  # nothing has waited before
        held.append(batch)
        rows += batch.num_rows
        # Never `nbytes`: it reads the offsets of lists without values, which Java leaves out, and ends the worker.
        size += batch.get_total_buffer_size()
        if rows >= JOINED_ROWS or size >= JOINED_BYTES or time.monotonic() - started > JOINED_SECONDS:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)
