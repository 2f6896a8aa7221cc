"""The environment over the settings file: `PIPELINE_<SECTION>__<KEY>` wins.

Guarantee: a variable that was meant for a setting takes effect or is refused; none is passed over for want of an
underscore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "PIPELINE_"
SEPARATOR = "__"
# Kubernetes tells each container of its neighbours: of a service `pipeline-metrics` by PIPELINE_METRICS_PORT.
SERVICE = "tcp://"


def overlay(values: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Lay the environment's values over the file's, and say which keys they are."""
    merged = {name: dict(part) if isinstance(part, dict) else part for name, part in values.items()}
    origins = {}
    for name, value in sorted(environ.items()):
        if not is_setting(name):
            continue
        section, key = name.removeprefix(PREFIX).lower().split(SEPARATOR, 1)
        origins[f"{section}.{key}"] = origins[section] = f"environment variable {name}"
        part = merged.setdefault(section, {})
        if isinstance(part, dict):  # anything else is refused below, under its own name
            part[key] = tuple(value.split(",")) if key == "topics" else value
    # A whole section is to be blamed on the environment only if the file does not have it.
    return merged, {key: origin for key, origin in origins.items() if key not in values}


def is_setting(name: str) -> bool:
    """Whether a variable is meant for a setting."""
    return name.startswith(PREFIX) and SEPARATOR in name


def check_names(environ: Mapping[str, str], known: Mapping[str, Iterable[str]]) -> None:
    """Refuse a variable that names a section and a key of it with one underscore between them."""
    for section, keys in known.items():
        for key in keys:
            name = f"{PREFIX}{section}_{key}".upper()
            if name in environ and not environ[name].startswith(SERVICE):
                right = f"{PREFIX}{section}{SEPARATOR}{key}".upper()
                msg = f"environment variable {name}: not a setting: two underscores part section and key: {right}"
                raise BadSettings(msg)
