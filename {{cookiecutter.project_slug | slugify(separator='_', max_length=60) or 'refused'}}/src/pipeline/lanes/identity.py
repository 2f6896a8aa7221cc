"""Identity: how an upstream stamps a record, so that a second copy of it can be known.

Guarantee: an identity is read strictly or not at all. Nothing is guessed, rounded or invented;
what does not parse is the caller's dead letter `identity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline import sections

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1
MAX_PRODUCER_ID_BYTES = 200
# The longest decimal text of each type: int() of a megabyte of digits would cost seconds.
LONG_DIGITS = len(str(MAX_LONG))
INT_DIGITS = len(str(MAX_INT))


class Identity(NamedTuple):
    """Who sent a record, and as which one; `epoch` only fences, it never tells records apart."""

    producer_id: str
    epoch: int
    txn: int
    seq: int


def parse(producer_id: bytes | None, epoch: bytes | None, txn: bytes | None, seq: bytes | None) -> Identity | None:
    """Read the four header values; None when one is missing or malformed. An absent epoch is 0."""
    if producer_id is None or not 0 < len(producer_id) <= MAX_PRODUCER_ID_BYTES:
        return None
    txn_number = _decimal(txn, LONG_DIGITS, MAX_LONG)
    seq_number = _decimal(seq, INT_DIGITS, MAX_INT)
    epoch_number = 0 if epoch is None else _decimal(epoch, LONG_DIGITS, MAX_LONG)
    if txn_number is None or seq_number is None or epoch_number is None:
        return None
    try:
        return Identity(producer_id.decode(), epoch_number, txn_number, seq_number)
    except UnicodeDecodeError:
        return None


def headers(identity: Identity, names: sections.Identity) -> list[tuple[str, bytes]]:
    """Return the stamp that `parse` reads back as the same identity."""
    return [
        (names.producer_id, identity.producer_id.encode()),
        (names.producer_epoch, b"%d" % identity.epoch),
        (names.txn_id, b"%d" % identity.txn),
        (names.seq, b"%d" % identity.seq),
    ]


def _decimal(text: bytes | None, digits: int, highest: int) -> int | None:
    # bytes.isdigit() is true for ASCII digits alone: no sign, space, underscore, or digit of another script.
    if text is None or len(text) > digits or not text.isdigit():
        return None
    number = int(text)
    return number if number <= highest else None
