"""Three brokers that count what clients ask of them: connections, and requests by kind, frame by frame."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from tests.support.cluster import NODES
from tests.support.gates import PIECE_BYTES, Gate, GatedBroker

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

NAMES = {0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 10: "FindCoordinator", 18: "ApiVersions"}
NAMES |= {22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn", 32: "DescribeConfigs"}


class CountingGate(Gate):
    """A gate that reads the length and the kind of each request that passes."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.connections = 0
        self.open_now = 0
        self.open_most = 0
        self._lock = threading.Lock()
        super().__init__()

    def forget(self) -> None:
        """Count from 0; what is open now stays open."""
        with self._lock:
            self.requests.clear()
            self.connections, self.open_most = 0, self.open_now

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self.open_now += 1
            self.open_most = max(self.open_most, self.open_now)
        try:
            super()._connect(client)
        finally:
            with self._lock:
                self.open_now -= 1

    def _pass_on(self, giver: socket.socket, taker: socket.socket) -> None:
        try:
            asked = taker.getpeername()[1] == self.target
        except OSError:  # closed meanwhile by the other direction
            return
        read: Any = _Reader(giver, self._count) if asked else giver
        super()._pass_on(read, taker)

    def _count(self, api_key: int) -> None:
        with self._lock:
            self.requests[NAMES.get(api_key, f"request {api_key}")] += 1


class _Reader:
    """A socket whose requests are counted as they are read."""

    def __init__(self, giver: socket.socket, count: Callable[[int], None]) -> None:
        self._giver = giver
        self._count = count
        self._left = 0  # bytes of the frame in hand that are still to come
        self._head = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._giver.close()

    def recv(self, size: int) -> bytes:
        """Read on."""
        piece = self._giver.recv(min(size, PIECE_BYTES))
        self._look(piece)
        return piece

    def _look(self, piece: bytes) -> None:
        while piece:
            skipped = min(self._left, len(piece))
            self._left -= skipped
            piece = piece[skipped:]
            head, piece = piece[: 6 - len(self._head)], piece[6 - len(self._head) :]
            self._head += head
            if len(self._head) == 6:  # its length, and its kind
                self._count(int.from_bytes(self._head[4:]))
                self._left, self._head = int.from_bytes(self._head[:4]) - 2, b""


class CountedBroker(GatedBroker):
    """Three nodes behind gates that count."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for gate in self.gates.values():
            gate.close()
        self.counted = {number: CountingGate() for number in range(1, NODES + 1)}
        self.gates.update(self.counted)

    def forget(self) -> None:
        """Count from 0."""
        for gate in self.counted.values():
            gate.forget()

    @property
    def requests(self) -> Counter[str]:
        """All requests since then, by kind."""
        return sum((gate.requests for gate in self.counted.values()), Counter())

    @property
    def connections(self) -> int:
        """All connections since then."""
        return sum(gate.connections for gate in self.counted.values())

    @property
    def open_most(self) -> int:
        """The most connections that were open at once, summed over the nodes."""
        return sum(gate.open_most for gate in self.counted.values())
