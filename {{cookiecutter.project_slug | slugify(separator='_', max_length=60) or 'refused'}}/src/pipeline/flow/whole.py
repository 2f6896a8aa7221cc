"""Rows that break off are an error, not an end.

When a task fails in Java, or Java itself is killed, the worker's socket is closed; and Arrow takes a stream that is
over behind a whole batch for one that has ended, with or without its last mark. A lane would be moved past rows that
nobody wrote, and no retry would write them.

Guarantee: a task of a process that has imported this gets all rows of its input, or an error. Spark sends something
behind every stream that is whole; behind one that broke off nothing comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.serializers import ArrowStreamSerializer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


class BrokenOff(EOFError):
    """The input of a task ended too early."""


def load_whole(self: ArrowStreamSerializer, stream: BufferedReader) -> Iterator[Any]:
    """All batches of a stream, as PySpark reads them; then proof that it is over."""
    yield from _load(self, stream)
    if not stream.peek(1):
        msg = "the rows of the task broke off: Spark has closed the connection; nothing more is written by this attempt"
        raise BrokenOff(msg)


# At import, and not by a call: the first task of a worker on a cluster reads its input before any of our code is
# called, but not before the function that it runs has been loaded, and all that this imports.
_load = ArrowStreamSerializer.load_stream
ArrowStreamSerializer.load_stream = load_whole
