"""The settings as they take effect, each with its origin: the default, the file, or a variable of the environment.

Guarantee: what is shown is what a job started here would run with. No secret is shown, since none is a setting; of
each place that keeps one it is told whether something is there.
"""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.overlay import overlay
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DEFAULT = "default"
SECRETS = ("password", "key_password", "client_secret", "registry_user_info")


class Effective(NamedTuple):
    """One setting."""

    key: str
    value: Any
    origin: str
    note: str = ""


def effective(path: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Effective]:
    """Every setting in the order of the sections; bad ones are refused first, as by any command."""
    settings = load(path, environ)
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    _, origins = overlay(values, environ)
    for section, part in settings:
        for name, value in part:
            key = f"{section}.{name}"
            origin = origins.get(key) or (str(path) if name in values.get(section, {}) else DEFAULT)
            yield Effective(key, value, origin, _note(name, value))


def as_toml(shown: Iterator[Effective]) -> Iterator[str]:
    """As a settings file that means the same, with the origins as remarks."""
    last = ""
    for key, value, origin, note in shown:
        section, _, name = key.partition(".")
        if section != last:
            yield f"{chr(10) if last else ''}[{section}]"
        last = section
        yield f"{name} = {json.dumps(value)}  # {origin}{note and f'; {note}'}"


def _note(name: str, value: Any) -> str:
    """Whether a secret is there; `load` has refused a place that is empty."""
    kept = value and name.removesuffix("_env").removesuffix("_file") in SECRETS
    return "a secret is there, not shown" if kept else ""
