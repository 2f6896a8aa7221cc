"""The keys of [security] and [output_security] among each other, and what they name.

Guarantee: before anything starts, each method has what it needs and nothing of another, every secret is there and can
be taken by both clients alike, and every file holds what it is given for: OpenSSL, by which librdkafka reads them too,
has read it. A secret is never shown.
"""

from __future__ import annotations

import base64
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
LOCKED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----"
# The name of PBES2 (1.2.840.113549.1.5.13) as it stands at the head of an encrypted key.
PBES2 = bytes.fromhex("06092a864886f70d01050d")
HEAD_BYTES = 32
FOR_JAVA = "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in old.key -out new.key"
PLAIN_KEY = "openssl pkcs8 -topk8 -nocrypt -in old.key -out new.key"


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
        elif not _is_readable(name):
            yield key, f"{name!r}: must hold certificates in PEM form, but what stands there is damaged"
    if access.certificate_file and access.key_file:
        yield from _pair(access)


def _key(access: Access, name: str, text: str) -> Iterator[tuple[str, str]]:
    if KEY not in text and LOCKED_KEY not in text:
        remedy = f"{PLAIN_KEY}; to keep a password: {FOR_JAVA}"
        yield "key_file", f"{name!r}: must hold a PKCS #8 key ({KEY}): {remedy}"
    elif LOCKED_KEY in text and not _has_password(access):
        yield "key_file", f"{name!r}: is encrypted: name its password in key_password_env or key_password_file"
    elif KEY in text and _has_password(access):
        yield "key_file", f"{name!r}: is not encrypted; remove key_password_env and key_password_file"
    elif _is_pbes2(text):
        yield "key_file", f"{name!r}: is encrypted by PBES2, which Java's client cannot read: {FOR_JAVA}"


def _has_password(access: Access) -> bool:
    return bool(access.key_password_env or access.key_password_file)


def _is_pbes2(text: str) -> bool:
    """Whether a key is encrypted as OpenSSL 3 does by itself; what is no base64 at all is told by OpenSSL."""
    try:
        head = base64.b64decode(text.partition(LOCKED_KEY)[2].partition("-----")[0])[:HEAD_BYTES]
    except ValueError:
        return False
    return PBES2 in head


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # how strong keys must be is for clients and brokers to say
    return context


def _is_readable(name: str) -> bool:
    try:
        _context().load_verify_locations(name)
    except OSError:
        return False
    return True


def _pair(access: Access) -> Iterator[tuple[str, str]]:
    """The key is that of the certificate, and its password opens it."""
    name, own = access.key_file, access.certificate_file
    try:
        password = access.secret("key_password").checked() if _has_password(access) else ""
        _context().load_cert_chain(own, name, lambda: password)
    except BadSettings:
        return  # told as the fault of the secret
    except OSError as error:
        if "MISMATCH" in (getattr(error, "reason", None) or ""):
            fault = f"is not the key of certificate_file = {own!r}"
        elif password:
            fault = "is not opened by its key_password, or is damaged"
        else:
            fault = "must hold a PKCS #8 key, but what stands there is damaged"
        yield "key_file", f"{name!r}: {fault}"
