"""An authority for bearer tokens: a server that gives them to who knows the secret, and the key that proves them."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tests.support.certificates import OPENSSL_SECONDS, openssl

if TYPE_CHECKING:
    from pathlib import Path

LIFE_SECONDS = 600
EXPONENT = "AQAB"


class Tokens:
    """A context manager that answers at `url` while it is open; `keys` is the file by which brokers check tokens."""

    def __init__(self, folder: Path) -> None:
        """Make the key."""
        folder.mkdir(parents=True, exist_ok=True)
        self._key, self.keys = folder / "tokens.key", folder / "tokens.json"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self._key)
        modulus = self._openssl("rsa", "-in", str(self._key), "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "kid": "tests", "use": "sig", "alg": "RS256", "n": _b64(bytes.fromhex(modulus))}
        self.keys.write_text(json.dumps({"keys": [{**key, "e": EXPONENT}]}), "ascii")
        self.secrets: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        """Answer."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def token(self, name: str) -> str:
        """Return a signed token for a user."""
        now = int(time.time())
        claims = {"sub": name, "iss": "tests", "iat": now, "exp": now + LIFE_SECONDS, "scope": "kafka", "aud": "kafka"}
        parts = [{"alg": "RS256", "typ": "JWT", "kid": "tests"}, claims]
        text = ".".join(_b64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_b64(self._openssl('dgst', '-sha256', '-sign', str(self._key), given=text.encode()))}"

    def _openssl(self, *arguments: str, given: bytes = b"") -> bytes:
        command = ["openssl", *arguments]
        return subprocess.run(command, input=given, capture_output=True, check=True, timeout=OPENSSL_SECONDS).stdout

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                name, _, secret = given.partition(":")
                right = tokens.secrets.get(name) == secret
                answer = {"access_token": tokens.token(name), "token_type": "Bearer", "expires_in": LIFE_SECONDS}
                body = json.dumps(answer if right else {"error": "invalid_client"}).encode()
                self.send_response(200 if right else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
