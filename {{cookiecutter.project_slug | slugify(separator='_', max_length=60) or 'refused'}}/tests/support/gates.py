"""Three brokers behind gates: what goes to a node through a gate that is shut waits, in both directions.

As with a firewall that drops packets, nobody is told: connections stay open, new ones get no answer, and what was sent
meanwhile arrives when the gate opens. The brokers speak to one another past the gates.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.support.cluster import NODES
from tests.support.kafka import DEADLINE_SECONDS

from pipeline.local.broker import Broker
from pipeline.local.node import HOST, Node, Ports, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

PIECE_BYTES = 65_536


class Gate:
    """Forwards connections to one port, byte by byte, while it is open."""

    def __init__(self) -> None:
        self.target = free_ports(1)[0].client
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Let nothing through."""
        self._open.clear()

    def open(self) -> None:
        """Let everything through, also what has been waiting."""
        self._open.set()

    def close(self) -> None:
        """Take no more connections."""
        self.open()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            node = socket.create_connection((HOST, self.target), DEADLINE_SECONDS)
        except OSError:
            client.close()
            return
        node.settimeout(None)
        threading.Thread(target=self._pass_on, args=(client, node), daemon=True).start()
        self._pass_on(node, client)

    def _pass_on(self, giver: socket.socket, taker: socket.socket) -> None:
        with suppress(OSError), giver, taker:
            while piece := giver.recv(PIECE_BYTES):
                self._open.wait()
                taker.sendall(piece)
            # Closing alone would leave the other direction waiting.
            taker.shutdown(socket.SHUT_RDWR)


class GatedBroker(Broker):
    """Three nodes; clients that are given the address `gated` reach each of them through its gate only."""

    def __init__(self, **given: Any) -> None:
        super().__init__(nodes=NODES, **given)
        self.gates = {number: Gate() for number in range(1, NODES + 1)}

    @property
    def gated(self) -> str:
        """Addresses for clients that are to go through the gates."""
        return ",".join(f"{HOST}:{gate.port}" for gate in self.gates.values())

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for gate in self.gates.values():
            gate.close()

    def _start(self) -> None:
        gates = self.gates

        class Gated(Node):
            def configure(self, ports: Ports, properties: Mapping[str, str]) -> None:
                gate = gates[self.number]
                direct = f"CLIENT://{HOST}:{ports.client}"
                listeners = {
                    "listeners": f"{direct},GATED://{HOST}:{gate.target},CONTROLLER://{HOST}:{ports.controller}",
                    "advertised.listeners": f"{direct},GATED://{HOST}:{gate.port}",
                    "listener.security.protocol.map": "CLIENT:PLAINTEXT,GATED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                }
                super().configure(ports, {**properties, **listeners})

        with patch("pipeline.local.broker.Node", Gated):
            super()._start()
