"""Values in Confluent's wire format: a zero byte, the id of the writer's schema in four, then plain Avro.

Guarantee: values of different schemas may stand side by side; each is read by its own, into the same columns. A
registry that does not answer never makes a dead letter: its rows carry `STOP`, on which the lane writer stops the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.avro.collector import paused
from pipeline.avro.columns import Columns
from pipeline.avro.compatible import mismatch
from pipeline.avro.decode import TOMBSTONE, Decoder, Reader
from pipeline.avro.limits import FRAMING, SCHEMA_MISMATCH, STOP, Limits, told
from pipeline.avro.node import BadSchema, tree
from pipeline.avro.registry import Away, Refused, Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = 0
GUID_MAGIC = 1
HEAD_BYTES = 5
# A newer form names the schema in this header, by a GUID, and the value has no head: its first bytes mean nothing here.
GUID_HEADER = "__value_schema_id"
BY_GUID = bytes([GUID_MAGIC]) + bytes(16)


class FramedDecoder:
    """Decodes framed values; schemas that were met are kept."""

    def __init__(self, reader: Reader, registry: Registry, limits: Limits | None = None) -> None:
        """`reader` is the schema of the columns."""
        self._reader = reader
        self._registry = registry
        self._limits = limits or Limits()
        self._decoders: dict[int, Decoder] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._reader.node.names

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[Any], list[str | None]]:
        """The columns of a batch, null where there is an error, and the errors."""
        errors: list[str | None] = [None] * len(values)
        records: list[dict[str, Any] | None] = [None] * len(values)
        for number, rows in self._by_schema(values, errors).items():
            try:
                decoder = self._decoder(number)
            except (Refused, Away) as error:
                why = told(STOP, str(error)) if isinstance(error, Away) else str(error)
                for row in rows:
                    errors[row] = why
                continue
            with paused():
                found, wrong = decoder.records([(values[row] or b"")[HEAD_BYTES:] for row in rows])
            for row, record, wrong_one in zip(rows, found, wrong, strict=True):
                records[row], errors[row] = record, wrong_one
        return Columns(errors).record(self._reader.node, records), errors

    def _by_schema(self, values: Sequence[bytes | None], errors: list[str | None]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row, value in enumerate(values):
            if value is None:
                errors[row] = TOMBSTONE
            elif len(value) < HEAD_BYTES or value[0] != MAGIC:
                errors[row] = told(FRAMING, _unframed(value))
            else:
                found.setdefault(int.from_bytes(value[1:HEAD_BYTES], "big"), []).append(row)
        return found

    def _decoder(self, number: int) -> Decoder:
        if number not in self._decoders:
            schema = self._registry.schema(number)
            try:
                why = mismatch(tree(schema), self._reader.node)
            except BadSchema as error:
                why = str(error)
            if why is not None:
                raise Refused(told(SCHEMA_MISMATCH, f"schema {number}: {why}"))
            self._decoders[number] = Decoder(self._reader, schema, self._limits)
        return self._decoders[number]


def head(number: int) -> bytes:
    """What stands before a value of the schema with this id."""
    return bytes([MAGIC]) + number.to_bytes(HEAD_BYTES - 1, "big")


def _unframed(value: bytes) -> str:
    if len(value) < HEAD_BYTES:
        return f"{len(value)} bytes, too few for the head of a framed value"
    if value[0] == GUID_MAGIC:
        return "a schema named by a GUID, which is not supported"
    return f"its first byte is {value[0]}, not {MAGIC}"
