"""Every way in which a source record can be unusable, for the workload and the tests.

Guarantee: each of `broken_stamps` identifies nothing, whatever the stamp it is made from; no value of `UNDECODABLE`, or
in Avro of `UNDECODABLE_AVRO`, is a payment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Headers = list[tuple[str, bytes | None]]

UNDECODABLE: tuple[bytes | None, ...] = (
    b"not json",
    b'{"id":"cut","amount":1',
    b'{"id":"\xff\xfe","amount":1.00}',
    None,
)

# Cut off, nothing, trailing bytes, a length of 2^40, text that is none, an over-long number, a tombstone.
UNDECODABLE_AVRO: tuple[bytes | None, ...] = (
    b"\x06cut\x06acc",
    b"",
    b"\x02i\x02a\x02\x01\x06EUR\x02" + b"behind",
    b"\x80\x80\x80\x80\x80\x40",
    b"\x04\xff\xfe\x02a\x02\x01\x06EUR\x02",
    b"\x82" + b"\x80" * 2_000 + b"\x00i\x02a\x02\x01\x06EUR\x02",
    None,
)


def stamp(name: bytes, epoch: int, txn: int, seq: int) -> Headers:
    """Return the headers by which an upstream producer identifies a record."""
    return [("producer-id", name), ("producer-epoch", b"%d" % epoch), ("txn-id", b"%d" % txn), ("seq", b"%d" % seq)]


def broken_stamps(good: Headers) -> Iterator[Headers]:
    """Yield headers that identify nothing: absent, empty, repeated, or not what they should be."""
    for name in ("producer-id", "txn-id", "seq"):
        yield [header for header in good if header[0] != name]
    yield [*good, ("txn-id", b"7")]
    changes: tuple[tuple[str, bytes], ...] = (
        ("producer-id", b""),
        ("producer-id", b"\xff\xfe"),
        ("producer-id", b"x" * 201),
        ("producer-epoch", b"-1"),
        ("txn-id", b"1_0"),
        ("txn-id", b"%d" % 2**63),
        ("seq", b"1.0"),
        ("seq", b" 1"),
        ("seq", "\u0661".encode()),
        ("seq", b"%d" % 2**31),
    )
    for changed, value in changes:
        yield [(name, value if name == changed else old) for name, old in good]
