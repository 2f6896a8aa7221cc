"""Certificates for tests, made on the fly by the command `openssl`: an authority, and what it has signed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pathlib import Path

OPENSSL_SECONDS = 60


class Certificate(NamedTuple):
    """A certificate and its key (PKCS #8), each in a PEM file."""

    certificate: Path
    key: Path

    def together(self) -> Path:
        """Write both into one file, as Kafka's brokers take them."""
        both = self.key.with_suffix(".both.pem")
        both.write_text(self.key.read_text("ascii") + self.certificate.read_text("ascii"), "ascii")
        return both


class Authority:
    """Signs certificates; those who trust it take its `certificate`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Make its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", f"/CN={name}")
        openssl("req", "-x509", *new, "-keyout", self._key, "-out", self.certificate)

    def sign(self, name: str, san: str = "", days: int = 30, password: str = "") -> Certificate:
        """Make a certificate for a common name; `san` as openssl writes it: DNS:localhost; 0 days: it has expired."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        plain = made.key.with_suffix(".plain") if password else made.key
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
        openssl("req", "-new", *curve, "-keyout", plain, "-out", request)
        if password:  # as Java's client reads it
            form = ("-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}")
            openssl("pkcs8", *form, "-in", plain, "-out", made.key)
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n" if san else "basicConstraints=CA:FALSE\n", "ascii")
        by = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        openssl(
            "x509", "-req", "-in", request, *by, "-days", str(days), "-extfile", extensions, "-out", made.certificate
        )
        return made


def openssl(*arguments: str | Path) -> None:
    """Run the command; a machine without it skips the test, and says so."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=OPENSSL_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
