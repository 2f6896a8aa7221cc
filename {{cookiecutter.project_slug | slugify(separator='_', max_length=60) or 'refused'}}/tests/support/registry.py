"""A real HTTP server that speaks the Schema Registry's API, and can be down, slow, or talk nonsense."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_SECONDS = 3.0


@dataclass
class FakeRegistry:
    """Schemas by id and by subject; `mood` says how it answers."""

    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    mood: str = "well"
    calls: Counter[str] = field(default_factory=Counter)
    url: str = ""
    # By what callers introduced themselves.
    logins: set[str] = field(default_factory=set)
    # What else it says of a schema: its type if it is not Avro, the schemas that it refers to.
    remarks: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, schema: Any, subject: str = "source-value") -> int:
        """Register a schema; the same one keeps its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if text not in self.schemas:
            self.schemas.append(text)
        number = self.schemas.index(text) + 1
        if number not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body as the registry does."""
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if 1 <= number <= len(self.schemas):
                return 200, {"schema": self.schemas[number - 1], **self.remarks.get(number, {})}
            return 404, {"error_code": 40403, "message": "Schema not found"}
        subject = parts[1]
        if method == "POST" and parts[2:] == ["versions"]:
            return 200, {"id": self.add(body["schema"], subject)}
        for number in self.subjects.get(subject, []):
            if json.loads(self.schemas[number - 1]) == json.loads(body["schema"]):
                return 200, {"subject": subject, "id": number, "version": 1, "schema": self.schemas[number - 1]}
        return 404, {"error_code": 40401, "message": "Subject not found"}


def moody(registry: FakeRegistry, method: str, path: str, body: Any) -> tuple[int, bytes]:
    """Return status and bytes, as the mood is."""
    if registry.mood == "down":
        return 503, b'{"error_code": 50301, "message": "leader not known"}'
    if registry.mood == "slow":
        time.sleep(SLOW_SECONDS)
    if registry.mood == "unknown login":
        return 401, b'{"error_code": 401, "message": "Unauthorized"}'
    if registry.mood == "nonsense":
        return 200, b"<html>welcome to the captive portal</html>"
    if registry.mood == "other 404":
        return 404, b"<html>no such page</html>"
    if registry.mood == "other answer":
        return 200, b'{"schema": "{ not a schema"}'
    status, found = registry.answer(method, path, body)
    return status, json.dumps(found).encode()


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    """Serve it on a port of its own."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.calls[f"{method} {self.path.partition('?')[0]}"] += 1
            registry.logins.add(self.headers.get("Authorization", ""))
            status, data = moody(registry, method, self.path, json.loads(body) if body else None)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
