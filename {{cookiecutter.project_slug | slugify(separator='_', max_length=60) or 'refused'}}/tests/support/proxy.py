"""A proxy that knows Kafka's frames: it can keep a request and deliver it later, or lose the answer to one.

The broker behind it has a listener of its own for the proxy and advertises the proxy's address there; so a client
that is given that address speaks to the broker through the proxy only.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from tests.support.kafka import DEADLINE_SECONDS

from pipeline.local.broker import Broker
from pipeline.local.node import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCE = 0
END_TXN = 26
FLEXIBLE_END_TXN = 3  # from this version on, tagged fields stand before the body of the answer


class Rule(NamedTuple):
    """What happens to the next request of a kind."""

    forward: bool = True
    answer: bool = True
    keep: Callable[[bytes], None] | None = None
    then: Callable[[], None] | None = None


class Held:
    """A request that was kept back from the broker; its sender saw the connection break."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._frame: bytes | None = None
        self._caught = threading.Event()

    def keep(self, frame: bytes) -> None:
        """Keep the request."""
        self._frame = frame
        self._caught.set()

    def release(self) -> int:
        """Deliver the EndTxn request now, whether or not its sender still lives; return the broker's error code."""
        assert self._caught.wait(DEADLINE_SECONDS), "no such request came"
        frame = self._frame or b""
        with self._proxy.upstream() as broker:
            _send(broker, frame)
            answer = _read(broker) or b""
        throttle = 5 if int.from_bytes(frame[2:4]) >= FLEXIBLE_END_TXN else 4
        return int.from_bytes(answer[throttle + 4 : throttle + 6])


class Proxy:
    """Listens on a port of its own; forwards each connection to the broker, one request at a time."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port = 0
        self._rules: dict[int, list[Rule]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_next(self, api_key: int) -> Held:
        """Keep the next request of a kind and break its connection."""
        held = Held(self)
        self._add(api_key, Rule(forward=False, answer=False, keep=held.keep))
        return held

    def lose_answers(self, api_key: int, times: int) -> None:
        """Deliver the next requests of a kind, but break the connection instead of passing on their answers."""
        for _ in range(times):
            self._add(api_key, Rule(answer=False))

    def after_next(self, api_key: int, action: Callable[[], None]) -> None:
        """Do something once the broker has answered the next request of a kind, before anything else goes through."""
        self._add(api_key, Rule(then=action))

    def forget_rules(self) -> None:
        """Forward everything from now on."""
        with self._lock:
            self._rules.clear()

    @contextmanager
    def upstream(self) -> Iterator[socket.socket]:
        """Connect to the broker."""
        with socket.create_connection((HOST, self.broker_port), DEADLINE_SECONDS) as broker:
            yield broker

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _add(self, api_key: int, rule: Rule) -> None:
        with self._lock:
            self._rules.setdefault(api_key, []).append(rule)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, self.upstream() as broker:
            broker.settimeout(None)
            while (request := _read(client)) is not None:
                rule = self._next_rule(int.from_bytes(request[:2]))
                if rule.keep is not None:
                    rule.keep(request)
                if rule.forward:
                    _send(broker, request)
                    answer = _read(broker)
                if rule.then is not None:
                    rule.then()
                if not rule.answer or answer is None:
                    return
                _send(client, answer)

    def _next_rule(self, api_key: int) -> Rule:
        with self._lock:
            waiting = self._rules.get(api_key)
            return waiting.pop(0) if waiting else Rule()


class ProxiedBroker(Broker):
    """A broker with a second listener, whose clients are sent to the proxy."""

    def __init__(self) -> None:
        super().__init__()
        self.proxy = Proxy()
        self.proxy.broker_port = free_ports(1)[0].client

    @property
    def proxied(self) -> str:
        """The address for clients that are to go through the proxy."""
        return f"{HOST}:{self.proxy.port}"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.proxy.close()

    def _settings(self) -> dict[str, str]:
        client, controller = self._ports[0]
        direct = f"CLIENT://{HOST}:{client}"
        return {
            **super()._settings(),
            "listeners": f"{direct},PROXIED://{HOST}:{self.proxy.broker_port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{direct},PROXIED://{self.proxied}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }


def _read(connection: socket.socket) -> bytes | None:
    """Return the next frame without its length, or None at the end."""
    length = _exactly(connection, 4)
    return None if length is None else _exactly(connection, int.from_bytes(length))


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(len(frame).to_bytes(4) + frame)
