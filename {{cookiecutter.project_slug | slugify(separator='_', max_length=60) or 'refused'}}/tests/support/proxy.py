"""A proxy that knows Kafka's frames: it keeps, repeats or cuts off requests, loses answers, and logs transactions.

The broker behind it has a listener of its own for the proxy and advertises the proxy's address there; so a client
that is given that address speaks to the broker through the proxy only.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from tests.support.frames import END_TXN, INIT_PRODUCER_ID, PRODUCE, Frame, error_of, frame_of, with_error
from tests.support.kafka import DEADLINE_SECONDS

from pipeline.local.broker import Broker
from pipeline.local.node import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["END_TXN", "PRODUCE", "Held", "ProxiedBroker", "Proxy"]

# Whoever closes a connection at once and without a word: its other end sees it reset.
RESET = struct.pack("ii", 1, 0)


class Rule(NamedTuple):
    """What happens to one request of a kind; `copies` are sent to the broker, and the first answer is passed on."""

    copies: int = 1
    answer: bool = True
    half: bool = False
    keep: Callable[[bytes], None] | None = None
    then: Callable[[], None] | None = None
    error: int = 0


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

    def caught(self) -> bool:
        """Tell whether the request has come."""
        return self._caught.is_set()

    def is_fenced(self) -> bool:
        """Tell whether another producer has taken the id of the request since."""
        frames = list(self._proxy.frames)
        kept = frame_of(self._frame or b"", None)
        assert kept is not None, "no such request came"
        place = max(place for place, frame in enumerate(frames) if frame._replace(at=kept.at) == kept)
        later = (frame for frame in frames[place:] if frame.transactional_id == kept.transactional_id)
        return any(frame.api_key == INIT_PRODUCER_ID and frame.error == 0 for frame in later)

    def release(self) -> int:
        """Deliver the EndTxn request now, whether or not its sender still lives; return the broker's error code."""
        assert self._caught.wait(DEADLINE_SECONDS), "no such request came"
        frame = self._frame or b""
        with self._proxy.upstream() as broker:
            _send(broker, frame)
            code = error_of(frame, _read(broker))
        assert code is not None, "the broker did not answer"
        return code


class Proxy:
    """Listens on a port of its own; forwards each connection to the broker, one request at a time."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port = 0
        #: Every transactional request that came through, in the order of the answers.
        self.frames: list[Frame] = []
        self._rules: dict[int, list[Rule]] = {}
        self._clients: set[socket.socket] = set()
        self._away = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_next(self, api_key: int) -> Held:
        """Keep the next request of a kind and break its connection."""
        held = Held(self)
        self._add(api_key, Rule(copies=0, answer=False, keep=held.keep))
        return held

    def lose_answers(self, api_key: int, times: int = 1, nth: int = 1) -> None:
        """Deliver requests of a kind, from the nth on, but break the connection instead of passing on their answers."""
        for number in range(times):
            self._add(api_key, Rule(answer=False), 1 if number else nth)

    def repeat(self, api_key: int, nth: int = 1) -> None:
        """Deliver the nth request of a kind twice."""
        self._add(api_key, Rule(copies=2), nth)

    def refuse(self, api_key: int, code: int) -> None:
        """Deliver the next request of a kind, but tell its sender that it has failed by this code."""
        self._add(api_key, Rule(error=code))

    def cut(self, api_key: int, nth: int = 1) -> None:
        """Reset the connection in the middle of the answer to the nth request of a kind."""
        self._add(api_key, Rule(half=True), nth)

    def after_next(self, api_key: int, action: Callable[[], None]) -> None:
        """Do something once the broker has answered the next request of a kind, before anything else goes through."""
        self._add(api_key, Rule(then=action))

    def forget_rules(self) -> None:
        """Forward everything from now on."""
        with self._lock:
            self._rules.clear()

    def waiting(self, api_key: int) -> int:
        """Return how many requests of a kind are still to be hurt: 0 once all that was planned has happened."""
        with self._lock:
            return len(self._rules.get(api_key, ()))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Reset every connection, old or new, as if no broker were there."""
        self._away = True
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            self._away = False

    def commits(self, app: str) -> set[tuple[str, int, int]]:
        """The transactions of an app whose commit the broker took: transactional id, producer id, epoch.

        An answer that was lost makes a client ask again, and the broker confirms what it has done: one transaction.
        """
        return {frame.transaction for frame in list(self.frames) if frame.committed and frame.of(app)}

    @contextmanager
    def upstream(self) -> Iterator[socket.socket]:
        """Connect to the broker."""
        with socket.create_connection((HOST, self.broker_port), DEADLINE_SECONDS) as broker:
            yield broker

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _add(self, api_key: int, rule: Rule, nth: int = 1) -> None:
        with self._lock:
            self._rules.setdefault(api_key, []).extend([Rule()] * (nth - 1) + [rule])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.add(client)
        try:
            with suppress(OSError), client:
                if self._away:
                    _reset(client)
                else:
                    self._forward(client)
        finally:
            with self._lock:
                self._clients.discard(client)

    def _forward(self, client: socket.socket) -> None:
        with self.upstream() as broker:
            broker.settimeout(None)
            while (request := _read(client)) is not None:
                rule = self._next_rule(int.from_bytes(request[:2]))
                if rule.keep is not None:
                    rule.keep(request)
                for _ in range(rule.copies):
                    _send(broker, request)
                answers = [_read(broker) for _ in range(rule.copies)]
                self.frames += [frame for answer in answers or [None] if (frame := frame_of(request, answer))]
                if rule.then is not None:
                    rule.then()
                if not rule.answer or answers[0] is None:
                    return
                if rule.half:
                    client.sendall(len(answers[0]).to_bytes(4) + answers[0][: len(answers[0]) // 2])
                    _reset(client)
                    return
                _send(client, with_error(request, answers[0], rule.error) if rule.error else answers[0])

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


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(len(frame).to_bytes(4) + frame)
