"""The endpoint: `/metrics` for Prometheus, `/healthz` and `/readyz` for supervisors.

Guarantee: it answers from memory, in threads of its own, at any time, and it is bound before Spark is started: a port
that is taken is a clear error, not a surprise minutes later.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from pipeline.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from pipeline.observe.lag import Poller
    from pipeline.observe.metrics import Metrics
    from pipeline.settings import Settings

logger = logging.getLogger("pipeline")

TEXT = "text/plain; charset=utf-8"
# A client that sends half a request must not hold a thread for ever.
CLIENT_SECONDS = 10.0
# A poll has to wait for requests to two clusters; after this long without one, the poller itself is in trouble.
SILENT_SECONDS = 60.0


def trouble(settings: Settings, metrics: Metrics, poller: Poller) -> str:
    """Why the job is not ready; nothing if it is."""
    if not metrics.lanes.next_offsets:
        return "the lanes are not taken over yet"
    if poller.failure:
        return f"the last poll of the clusters failed: {poller.failure}"
    polled, now = metrics.lag.polled, time.time()
    if polled is None or now - polled.at > SILENT_SECONDS:
        return "the clusters have not been polled yet" if polled is None else "the clusters were not polled lately"
    behind = {lane: lag for lane, lag in metrics.lag.records(polled).items() if lag}
    idle = now - metrics.lanes.progressed_at
    if behind and idle > settings.metrics.ready_seconds:
        lags = ", ".join(f"lane {lane}: {lag}" for lane, lag in sorted(behind.items())[:3])
        bound = f"metrics.ready_seconds = {settings.metrics.ready_seconds:g}"
        return f"no progress for {idle:.0f} s ({bound}), but behind by {sum(behind.values())} offsets ({lags} ...)"
    return ""


class Endpoint(ThreadingMixIn, TCPServer):
    """Serves one registry; `trouble` says why the job is not ready, or nothing."""

    allow_reuse_address = True  # a restart must not wait for connections of its predecessor to fade
    daemon_threads = True

    def __init__(self, address: str, port: int, registry: CollectorRegistry, trouble: Callable[[], str]) -> None:
        """Take the port, or say which setting to change."""
        self.registry = registry
        self.trouble = trouble
        try:
            self.address_family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            super().__init__((str(place[0]), port), Answer)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                msg = f"metrics.address = {address!r}: {error.strerror}; give an address of this machine"
            else:
                msg = (
                    f"metrics.port = {port}: cannot listen on {address}: {error.strerror}; another job may hold it: "
                    f"choose another port (PIPELINE_METRICS__PORT={port + 1}), or 0 to run without an endpoint"
                )
            raise BadSettings(msg) from None

    @property
    def port(self) -> int:
        """The port that was taken."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve from now on."""
        threading.Thread(target=self.serve_forever, name="endpoint", daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  the base decides on names
        """A client that went away is no news; a defect here is, and does not end the job."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("endpoint=failing %r", error)


class Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Endpoint
    server_version = "pipeline"
    sys_version = ""
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        """The three pages; anything else is not found."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._send(HTTPStatus.OK, kind, encode(self.server.registry))
        elif path == "/healthz":
            self._send(HTTPStatus.OK, TEXT, b"alive\n")
        elif path == "/readyz":
            reason = self.server.trouble()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
            self._send(status, TEXT, f"{reason or 'ready'}\n".encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, TEXT, b"see /metrics, /healthz and /readyz\n")

    do_HEAD = do_GET  # noqa: N815  the base decides on names

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base decides on names
        """Scrapes are no news."""
