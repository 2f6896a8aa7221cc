"""The log: one line for each event, as key=value for people or as JSON for machines.

Guarantee: one event is one line whatever its text holds (a traceback follows a line for people), nothing in it is a
command to a terminal, and nothing that looks like a secret is written.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TextIO

PAIR = re.compile(r"(?:^|(?<=\s))([A-Za-z_][\w.]*)=(\S+)")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
HIDDEN = "***"
# password=..., "sasl.password": "...", api_key=..., Authorization: Bearer ...; a quoted value to its closing quote.
SECRET = re.compile(
    r"""(?P<key>[\w.\-]*(?:password|passwd|secret|token|credential|api[_.-]?key|authorization|jaas)[\w.\-]*["']?\s*[=:]\s*)
    (?P<value>"[^"]*"|'[^']*'|(?:bearer|basic)\s+\S+|[^\s,;&}]+)""",
    re.IGNORECASE | re.VERBOSE,
)
# What stands before the @ of an address.
LOGIN = re.compile(r"[^\s/@,]+:[^\s/@,]+@")


def set_up(form: str, stream: TextIO | None = None) -> None:
    """Send the pipeline's log, and the warnings of all else, to standard error in the form `text` or `json`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else KeyValues())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)  # libraries speak only of what went wrong
    logging.getLogger("pipeline").setLevel(logging.INFO)


def masked(text: str) -> str:
    """The text without what looks like a secret."""
    return LOGIN.sub(f"{HIDDEN}@", SECRET.sub(rf"\g<key>{HIDDEN}", text))


def printable(text: str) -> str:
    """The text with all escaped that a terminal might obey: control characters, marks of direction; line ends stay."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def time_of(record: logging.LogRecord) -> str:
    """When it happened, in UTC."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class KeyValues(logging.Formatter):
    """`time=... level=... key=value ...`, and the traceback below, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; what is not a pair stands in it as it was written."""
        text = printable(" ".join(masked(record.getMessage()).split()))
        line = f"time={time_of(record)} level={record.levelname.lower()} {text}"
        if record.exc_info:
            line += "\n" + printable(masked(self.formatException(record.exc_info)))
        return line


class JsonLines(logging.Formatter):
    """One JSON object per line; key=value pairs of the message become fields, numbers as numbers."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level and message have the last word: no pair replaces them."""
        text = masked(record.getMessage())
        fields: dict[str, Any] = {key: value_of(value) for key, value in PAIR.findall(text)}
        fields |= {"time": time_of(record), "level": record.levelname.lower(), "message": text}
        if record.exc_info:
            fields["exception"] = masked(self.formatException(record.exc_info))
        return json.dumps(fields)


def value_of(text: str) -> str | int | float:
    """A number, if it is one."""
    if not NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
