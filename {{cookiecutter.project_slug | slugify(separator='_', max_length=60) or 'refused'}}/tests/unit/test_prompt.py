"""What a worker reads: the same bytes as ever, acknowledged at once."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from pipeline.flow import prompt
from pipeline.flow.prompt import Prompt, Promptly, read_promptly

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection over loopback, as Spark and a worker have it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield near, far


def test_a_worker_reads_the_same_bytes_and_its_own_file_stays_open(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    spark, worker = pair
    sent = os.urandom(300_000)
    found: list[bytes] = []

    def main(infile: BinaryIO, outfile: BinaryIO) -> None:
        found.append(infile.read(100_000))
        found.append(infile.read(200_000))
        outfile.write(b"done")

    with os.fdopen(os.dup(worker.fileno()), "rb") as infile:
        out = io.BytesIO()
        feeder = threading.Thread(target=spark.sendall, args=(sent,))
        feeder.start()
        Promptly(main)(infile, out)
        feeder.join()
        assert (b"".join(found), out.getvalue()) == (sent, b"done")
        os.fstat(infile.fileno())  # not closed with the duplicate


def test_each_read_asks_for_acknowledgement_at_once(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []

    class Asked(socket.socket):
        def setsockopt(self, *option: Any) -> None:
            asked.append(option)

    monkeypatch.setattr(prompt, "QUICK", 12)
    monkeypatch.setattr("pipeline.flow.prompt.socket.socket", Asked)
    spark, worker = pair
    reader = Prompt(worker.fileno())
    for piece in (b"a", b"bc"):
        spark.sendall(piece)
        buffer = bytearray(8)
        assert bytes(buffer[: reader.readinto(buffer)]) == piece
    assert asked == [(socket.IPPROTO_TCP, 12, 1)] * 2
    reader.close()


def test_what_a_worker_runs_is_replaced_once_wherever_pyspark_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, program = SimpleNamespace(worker_main=print), SimpleNamespace(main=print)
    monkeypatch.setitem(sys.modules, "pyspark.daemon", daemon)
    monkeypatch.setitem(sys.modules, "__main__", program)
    read_promptly()
    made = daemon.worker_main
    assert isinstance(made, Promptly)
    read_promptly()
    assert daemon.worker_main is made
    assert vars(program) == {"main": print}
