"""The keys of [security] and [output_security] among each other, and what they name.

Guarantee: before anything starts, each method has what it needs and nothing of another, every secret is there and can
be taken by both clients alike, and every file is of the kind it is given for. A secret is never shown.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import BadSettings
from pipeline.security import SAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.security import Access

METHODS = {
    "scram": ("username", "password_env", "password_file"),
    "mtls": ("certificate_file", "key_file", "key_password_env", "key_password_file"),
    "oauth": ("token_url", "token_ca_file", "client_id", "client_secret_env", "client_secret_file", "scope"),
}
NEEDED = {"scram": ("username",), "mtls": ("certificate_file", "key_file"), "oauth": ("token_url", "client_id")}
SECRETS = {"scram": "password", "oauth": "client_secret"}
# Java's login configuration puts it between quotes, and librdkafka prepares no other signs for SCRAM.
SECRET = re.compile(r"[ !#-\[\]-~]{1,1000}")
SECRET_RULE = "must be 1 to 1000 printable ASCII signs without double quote and backslash"  # noqa: S105  a rule
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----"
PEM = "PEM_LIB"  # as Python's ssl names a key that cannot be read
LOCKED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----"


def faults(access: Access) -> Iterator[tuple[str, str]]:
    """Each rule that is broken: the key in full, and what is wrong with its value."""
    for key, fault in _faults(access):
        yield f"{access.section}.{key}", fault


def _faults(access: Access) -> Iterator[tuple[str, str]]:
    method = access.method
    for key, value in access:
        if not value or key == "method":
            continue
        if method in {"plaintext", SAME}:
            yield key, f"{value!r}: method = {method!r} needs no other key; choose a method, or remove it"
        owner = next((name for name, keys in METHODS.items() if key in keys), method)
        if owner != method:
            yield key, f"{value!r}: belongs to method {owner!r}, but the method is {method!r}"
    for key in NEEDED.get(method, ()):
        if not getattr(access, key):
            yield key, f"'': method {method!r} needs it"
    for name in ("password", "client_secret", "key_password"):
        yield from _secret(access, name, needed=SECRETS.get(method) == name)
    yield from _files(access)


def _secret(access: Access, name: str, *, needed: bool) -> Iterator[tuple[str, str]]:
    secret = access.secret(name)
    if secret.variable and secret.file:
        yield f"{name}_env", f"{secret.variable!r}: {name}_file is given too; name one place of the secret"
    if not secret.variable and not secret.file:
        if needed:
            yield f"{name}_env", f"'': method {access.method!r} needs it, or {name}_file"
        return
    try:
        value = secret.checked()
    except BadSettings as error:
        key, _, fault = str(error).partition(" = ")
        yield key.rpartition(".")[2], fault
        return
    key, place = (f"{name}_env", secret.variable) if secret.variable else (f"{name}_file", secret.file)
    if value.endswith("\n") and SECRET.fullmatch(value.rstrip("\r\n")):
        yield (
            key,
            f"{place!r}: the secret ends in a line end, which Java takes as a part of it; write it with printf %s",
        )
    elif not SECRET.fullmatch(value):
        yield key, f"{place!r}: the secret {SECRET_RULE}"


def _files(access: Access) -> Iterator[tuple[str, str]]:
    for key in ("ca_file", "token_ca_file", "certificate_file", "key_file"):
        if not (name := getattr(access, key)):
            continue
        try:
            text = Path(name).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            yield key, f"{name!r}: cannot be read: {error.strerror}"
            continue
        if key == "key_file":
            yield from _key(access, name, text)
        elif CERTIFICATE not in text:
            yield key, f"{name!r}: must hold certificates in PEM form ({CERTIFICATE})"


def _key(access: Access, name: str, text: str) -> Iterator[tuple[str, str]]:
    has_password = bool(access.key_password_env or access.key_password_file)
    if KEY not in text and LOCKED_KEY not in text:
        yield "key_file", f"{name!r}: must hold a PKCS #8 key ({KEY}): openssl pkcs8 -topk8 -in old.key -out new.key"
    elif LOCKED_KEY in text and not has_password:
        yield "key_file", f"{name!r}: is encrypted: name its password in key_password_env or key_password_file"
    elif KEY in text and has_password:
        yield "key_file", f"{name!r}: is not encrypted; remove key_password_env and key_password_file"
    elif access.certificate_file:
        yield from _fits(access, name)


def _fits(access: Access, name: str) -> Iterator[tuple[str, str]]:
    """Whether the password opens the key, and the key is the certificate's: clients fail without saying which."""
    secret = access.secret("key_password")
    try:
        password = secret.checked() if secret.variable or secret.file else ""
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(access.certificate_file, name, lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            yield "key_file", f"{name!r}: is not the key of certificate_file = {access.certificate_file!r}"
        elif password and (error.reason or PEM) == PEM:  # of other reasons the clients themselves are to judge
            key, place = ("env", secret.variable) if secret.variable else ("file", secret.file)
            yield f"key_password_{key}", f"{place!r}: the password does not open key_file = {name!r}"
    except (OSError, BadSettings):
        return  # told of before
