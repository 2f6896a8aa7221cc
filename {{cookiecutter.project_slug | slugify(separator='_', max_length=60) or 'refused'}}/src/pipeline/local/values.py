"""The values of the workload's payments, in each format that the job can read.

Guarantee: the same payment in JSON and in Avro decodes to the same columns; the Avro schema is that of
`schemas/payment.avsc` as the project was made.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import fastavro

from pipeline.local.malformed import UNDECODABLE, UNDECODABLE_AVRO

if TYPE_CHECKING:
    from collections.abc import Callable

    Encode = Callable[[bytes, bytes, int, int], bytes]  # id, account, cents, milliseconds

# The plain types beneath the logical ones: a decimal is its digits in bytes, a time its milliseconds.
FIELDS = {"id": "string", "account": "string", "amount": "bytes", "currency": "string", "at": "long"}
SCHEMA = fastavro.parse_schema(
    {"type": "record", "name": "Payment", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
)


def as_json(ident: bytes, account: bytes, cents: int, at: int) -> bytes:
    """A payment as a JSON object."""
    return b'{"id":"%s","account":"%s","amount":%d.%02d,"currency":"EUR","at":%d}' % (
        ident,
        account,
        cents // 100,
        cents % 100,
        at,
    )


def as_avro(ident: bytes, account: bytes, cents: int, at: int) -> bytes:
    """A payment as a plain Avro value."""
    amount = cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)
    stream = io.BytesIO()
    record = {"id": ident.decode(), "account": account.decode(), "amount": amount, "currency": "EUR", "at": at}
    fastavro.schemaless_writer(stream, SCHEMA, record)
    return stream.getvalue()


ENCODE: dict[str, Encode] = {"json": as_json, "avro": as_avro}
UNDECODABLE_AS = {"json": UNDECODABLE, "avro": UNDECODABLE_AVRO}
