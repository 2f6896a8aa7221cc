"""What Spark sends to a Python worker arrives at once.

Java's socket holds the rest of what it has to send back until all before is acknowledged, and the worker's socket
acknowledges late, in the hope of an answer to go with it: 40 ms in which nobody works, in nearly every task.

Guarantee: the same bytes in the same order.
"""

from __future__ import annotations

import io
import os
import socket
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

    Main = Callable[[BinaryIO, BinaryIO], None]

# Of Linux; elsewhere a worker reads as ever.
QUICK = getattr(socket, "TCP_QUICKACK", None)
BUFFER_BYTES = 65_536  # as PySpark's own
# Where PySpark keeps what a worker runs: as the program itself on a cluster, as a module under a parent of our own.
DAEMONS = ("__main__", "pyspark.daemon")


class Prompt(io.RawIOBase):
    """The reading side of a worker's socket."""

    def __init__(self, descriptor: int) -> None:
        """A duplicate: whoever opened the descriptor closes it."""
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.settimeout(None)  # a default that somebody has set would make the worker's own file non-blocking
        self._quick = QUICK if self._socket.family in {socket.AF_INET, socket.AF_INET6} else None

    def readable(self) -> bool:
        """Only that."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Have what came acknowledged at once, and wait for more; the system forgets the wish, so each read says it."""
        if self._quick is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, self._quick, 1)
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Give the duplicate back."""
        self._socket.close()
        super().close()


class Promptly:
    """A worker's main function, with another file to read from."""

    def __init__(self, main: Main) -> None:
        """`main` is PySpark's."""
        self._main = main

    def __call__(self, infile: BinaryIO, outfile: BinaryIO) -> None:
        """Nothing stands in the given file's buffer: Spark sends a task only to a worker that has answered."""
        with io.BufferedReader(Prompt(infile.fileno()), BUFFER_BYTES) as promptly:
            self._main(promptly, outfile)


def read_promptly() -> None:
    """Let all further tasks of this process, and of those that are forked from it, read like this."""
    for module in map(sys.modules.get, DAEMONS):
        main = getattr(module, "worker_main", None)
        if main is not None and not isinstance(main, Promptly):
            module.worker_main = Promptly(main)  # type: ignore[union-attr]
