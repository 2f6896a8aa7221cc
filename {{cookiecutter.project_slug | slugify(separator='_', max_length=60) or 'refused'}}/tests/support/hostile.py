"""Values that no upstream should send, each with the reason that its dead letter must give."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline.avro.limits import DECODE, LIMITS, TRAILING

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


class Hostile(NamedTuple):
    """One value, the schema it claims to follow, and what becomes of it."""

    value: bytes | None
    kind: Any  # the type of the record's one field
    reason: str
    says: str  # a part of the detail


def number(value: int, *, more: int = 0) -> bytes:
    """Return a number as Avro writes it; `more` bytes make it over-long."""
    zigzag = (value << 1) ^ (value >> 63) if value < 0 else value << 1
    data = bytearray()
    while zigzag > 0x7F or more > 0:
        if zigzag <= 0x7F:
            more -= 1
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    data.append(zigzag)
    return bytes(data)


def array(items: Any) -> dict[str, Any]:
    """Return the type of an array."""
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    """Return the type of a map."""
    return {"type": "map", "values": values}


NOTHING = {"type": "record", "name": "Nothing", "fields": []}
ENUM = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
CUT = "the value ends within it"
NUMBER = "a number that is cut off, over-long or too large"
LIES = "more items than bytes are left"

HOSTILE: dict[str, Hostile] = {
    "null value (tombstone)": Hostile(None, "string", DECODE, "tombstone"),
    "empty value": Hostile(b"", "string", DECODE, NUMBER),
    "array that claims 10^9 nulls in 6 bytes": Hostile(number(10**9) + b"\0", array("null"), LIMITS, "codec.max_items"),
    "array that claims 10^9 empty records": Hostile(number(10**9) + b"\0", array(NOTHING), LIMITS, "codec.max_items"),
    "array that claims 2^62 items": Hostile(number(2**62) + b"\0", array("int"), DECODE, LIES),
    "map that claims 2^62 items": Hostile(number(2**62) + b"\0", mapping("null"), DECODE, LIES),
    "array with a count of -2^63": Hostile(number(-(2**63)) + b"\0\0", array("int"), DECODE, LIES),
    "array with a negative count and no size": Hostile(number(-1), array("int"), DECODE, NUMBER),
    "array in blocks that add up to too much": Hostile(
        (number(60_000) + b"\0" * 60_000) * 2 + b"\0", array("boolean"), LIMITS, "codec.max_items"
    ),
    "text with a length of 2^40": Hostile(number(2**40) + b"x", "string", DECODE, CUT),
    "bytes with a negative length": Hostile(number(-5) + b"x", "bytes", DECODE, CUT),
    "bytes with a length of 2^63-1": Hostile(number(2**63 - 1) + b"x", "bytes", DECODE, CUT),
    "bytes behind the value": Hostile(number(1) + b"xyz", "string", TRAILING, "2 bytes behind"),
    "two values in one": Hostile((number(1) + b"x") * 2, "string", TRAILING, "2 bytes behind"),
    "number of 2,000 bytes": Hostile(number(7, more=2_000), "long", DECODE, NUMBER),
    "number with one byte too many": Hostile(number(7, more=1), "long", DECODE, NUMBER),
    "number beyond 64 bits": Hostile(b"\xff" * 9 + b"\x02", "long", DECODE, NUMBER),
    "number beyond 32 bits for an int": Hostile(number(2**31), "int", DECODE, "a number beyond 32 bits"),
    "number that is cut off": Hostile(b"\x80", "long", DECODE, NUMBER),
    "union index 7 of 2": Hostile(number(7), ["null", "int"], DECODE, "a union index out of range"),
    "union index -1": Hostile(number(-1), ["null", "int"], DECODE, "a union index out of range"),
    "enum index out of range": Hostile(number(2), ENUM, DECODE, "an enum index out of range"),
    "truth value of 2": Hostile(b"\x02", "boolean", DECODE, "a truth value"),
    "double that is cut off": Hostile(b"\0" * 7, "double", DECODE, CUT),
    "text of the bytes ff fe": Hostile(number(2) + b"\xff\xfe", "string", DECODE, "not valid UTF-8"),
    "map key that is not UTF-8": Hostile(
        number(1) + number(1) + b"\xff" + b"\0", mapping("null"), DECODE, "not valid UTF-8"
    ),
    "half of a surrogate pair": Hostile(number(3) + b"\xed\xa0\x80", "string", DECODE, "not valid UTF-8"),
    "decimal with more digits than its type": Hostile(
        number(3) + b"\x7f\xff\xff", DECIMAL, DECODE, "more than 4 digits"
    ),
    "decimal of 1,000 bytes": Hostile(number(1_000) + b"\x7f" * 1_000, DECIMAL, DECODE, "more than 4 digits"),
    "decimal of no bytes": Hostile(number(0), DECIMAL, DECODE, "more than 4 digits"),
    "time beyond the year 9999": Hostile(number(253_402_300_800_000), TIME, DECODE, "beyond the years 1 to 9999"),
    "time of 2^62 milliseconds": Hostile(number(2**62), TIME, DECODE, "beyond the years 1 to 9999"),
    "value of more bytes than allowed": Hostile(number(2**20) + b"x" * 2**20, "string", LIMITS, "codec.max_bytes"),
    "JSON where Avro is expected": Hostile(b'{"x": "1"}', "string", DECODE, CUT),
}


def schema(kind: Any) -> dict[str, Any]:
    """Return a record with one field."""
    return {"type": "record", "name": "Event", "fields": [{"name": "x", "type": kind}]}


# A record in a record in a record: only a writer's schema can be like this, where the reader leaves the field out.
CHAIN = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Link"]}],
}
LINK = {"type": "record", "name": "Link", "fields": [{"name": "id", "type": "int"}]}


def chain(depth: int) -> bytes:
    """Return a value of so many levels."""
    return (number(1) + number(1)) * depth + number(1) + number(0)
