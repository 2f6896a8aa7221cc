"""A column of encoded values to columns of a schema, through fastavro: one call for a whole batch.

Guarantee: every row has either its columns or an error; no value, whatever its bytes, can raise, crash or hang here.
Memory is bounded: rows are decoded in parts of so many items, and only what the scan found sound reaches fastavro.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro

from pipeline.avro.collector import paused
from pipeline.avro.columns import Columns, arrow_type
from pipeline.avro.limits import SCHEMA_MISMATCH, Limits, told
from pipeline.avro.node import BadSchema, Node, bare, tree
from pipeline.avro.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

# Bytes of values that are decoded at once. A byte can become an object of a few hundred bytes.
PART_BYTES = 1_048_576
# What is said of a value may quote it, or a schema.
ERROR_CHARACTERS = 500
TOMBSTONE = "null value (tombstone)"
RETURN_NAMES = {"return_named_type": True}


@dataclass(frozen=True)
class Reader:
    """What is read into: the schema of the columns."""

    schema: Any
    node: Node
    type: pa.DataType

    @classmethod
    def of(cls, schema: Any) -> Reader:
        """Check a schema, which must be a record whose every field has a column type."""
        node = tree(schema)
        if node.kind != "record":
            msg = "the schema must be a record"
            raise BadSchema(msg)
        return cls(schema, node, arrow_type(node))


class Decoder:
    """Decodes values of one writer's schema into the reader's columns."""

    def __init__(self, reader: Reader, writer: Any = None, limits: Limits | None = None) -> None:
        """`writer` is the schema the values were written by, if it is another one."""
        self._reader = reader
        self._limits = limits or Limits()
        own = writer is None or writer == reader.schema
        self._writer_node = reader.node if own else tree(writer)
        self._array = _array(reader.schema if own else writer)
        self._reader_array = None if own else _array(reader.schema)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._reader.node.names

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], list[str | None]]:
        """The columns of a batch, null where there is an error, and the errors."""
        with paused():
            records, errors = self.records(values)
            return Columns(errors).record(self._reader.node, records), errors

    def records(self, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any] | None], list[str | None]]:
        """Decode into plain records, None where there is an error."""
        errors = scan(self._writer_node, values, self._limits)
        records: list[dict[str, Any] | None] = [None] * len(values)
        sound = []
        for row, (value, error) in enumerate(zip(values, errors, strict=True)):
            if value is None:
                errors[row] = TOMBSTONE
            elif error is None:
                sound.append(row)
        found = self._read([values[row] or b"" for row in sound], sound, errors)
        for row, record in zip(sound, found, strict=True):
            records[row] = record
        return records, errors

    def _read(self, values: list[bytes], rows: list[int], errors: list[str | None]) -> list[Any]:
        try:
            return self._call(values)
        except Exception:  # noqa: BLE001  whatever it is, it is found again below, at its own row
            return [self._read_one(value, row, errors) for value, row in zip(values, rows, strict=True)]

    def _read_one(self, value: bytes, row: int, errors: list[str | None]) -> Any:
        try:
            return self._call([value])[0]
        except fastavro.read.SchemaResolutionError as error:
            errors[row] = told(SCHEMA_MISMATCH, str(error)[:ERROR_CHARACTERS])
        except Exception as error:  # noqa: BLE001  hostile bytes may raise anything: it is the reason, not a failure
            errors[row] = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
        return None

    def _call(self, values: list[bytes]) -> list[Any]:
        """Read all values as the items of one array: the scan has proven where each of them ends."""
        stream = BytesIO(b"".join((_count(len(values)), *values, b"\0")))
        found: list[Any] = fastavro.schemaless_reader(stream, self._array, self._reader_array, **RETURN_NAMES)
        return found


def parts(values: Sequence[bytes | None], most: int = PART_BYTES) -> Iterator[slice]:
    """Cut a batch so that a part has no more bytes than this, or is a single value."""
    start = size = 0
    for place, value in enumerate(values):
        length = len(value or b"")
        if place > start and size + length > most:
            yield slice(start, place)
            start, size = place, 0
        size += length
    yield slice(start, len(values))


def _array(schema: Any) -> Any:
    return fastavro.parse_schema({"type": "array", "items": bare(schema)})


def _count(number: int) -> bytes:
    """The head of a block of so many items."""
    zigzag, head = number << 1, bytearray()
    while zigzag > 0x7F:  # noqa: PLR2004  seven bits a byte
        head.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    head.append(zigzag)
    return bytes(head)
