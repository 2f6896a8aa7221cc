"""What one value may cost, and what is said of a value that is not sound.

Guarantee: every refusal is one of `REASONS` with a bounded detail; the two travel as one text beside the row.
"""

from __future__ import annotations

from typing import NamedTuple

# Reasons of dead letters that the codec gives; what is not told apart is `decode`.
DECODE = "decode"
TRAILING = "trailing"
LIMITS = "limits"
FRAMING = "framing"
UNKNOWN_SCHEMA = "unknown-schema"
SCHEMA_MISMATCH = "schema-mismatch"
ENCODE = "encode"
OVERSIZED = "oversized"
# No reason of a dead letter: the row cannot be judged, and the job must stop.
STOP = "stop"
REASONS = (DECODE, TRAILING, LIMITS, FRAMING, UNKNOWN_SCHEMA, SCHEMA_MISMATCH, ENCODE, OVERSIZED)


class Limits(NamedTuple):
    """Bounds of one value; beyond them it becomes a dead letter, before it is decoded."""

    depth: int = 32
    items: int = 100_000
    bytes: int = 1_048_576


def told(reason: str, detail: str) -> str:
    """Reason and detail as the text that a row carries."""
    return detail if reason == DECODE else f"{reason}: {detail}"


def read(error: str) -> tuple[str, str]:
    """Reason and detail of a row's text."""
    reason, colon, detail = error.partition(": ")
    return (reason, detail) if colon and reason in {*REASONS, STOP} else (DECODE, error)
