"""The login of a Schema Registry: `user:password`, in a file that a setting names, or in a variable of the environment.

Guarantee: it is read in the process that asks the registry, and never shown. Before anything starts it is looked for,
has its form, and does not cross a network in clear.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipeline.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.sections import Codec

USER_INFO = "SCHEMA_REGISTRY_USER_INFO"
KEY = "codec.registry_user_info_file"
FORM = re.compile(r"[^:\s][^:\r\n]*:[^\r\n]*")
RULE = "must be user:password, in one line"


def login(file: str) -> str:
    """The login: that of the file, if one is named, else that of the variable; empty if there is none."""
    text = _of_file(file) if file else os.environ.get(USER_INFO, "")
    if FORM.fullmatch(text) or not (text or file):
        return text
    place = f"{KEY} = {file!r}: what it holds" if file else f"the environment variable {USER_INFO}"
    msg = f"{place} {RULE}"
    raise BadSettings(msg)


def _of_file(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        msg = f"{KEY} = {file!r}: cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        msg = f"{KEY} = {file!r}: is not text"
    raise BadSettings(msg) from None


def faults(codec: Codec) -> Iterator[tuple[str, str]]:
    """Each rule that the login breaks: the key in full, and what is wrong with its value."""
    url, file = codec.registry_url, codec.registry_user_info_file
    if "confluent" not in {codec.input_framing, codec.output_framing} and not file:
        return  # nobody asks a registry
    try:
        found = login(file)
    except BadSettings as error:
        key, _, fault = str(error).partition(" = ")
        yield (key, fault) if file else ("codec.registry_url", f"{url!r}: {error}")
        return
    if file and os.environ.get(USER_INFO, found) not in {found, ""}:
        yield KEY, f"{file!r}: the environment variable {USER_INFO} holds another login; keep one of them"
    for one in url.split(",") if found else ():
        if one.startswith("http:") and not _is_here(one):
            yield "codec.registry_url", f"{one!r}: the login would cross the network in clear; use https://"


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
