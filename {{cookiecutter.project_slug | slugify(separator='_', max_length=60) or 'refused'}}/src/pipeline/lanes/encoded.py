"""Outputs that are still columns become values: by the schema of their topic, a whole batch at a time.

Guarantee: a record's outputs stay together: one that its schema does not take gives its source record an error, so
that it becomes a dead letter as a whole.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.avro.encode import Encoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class OutputSchema(NamedTuple):
    """How the records of a topic are encoded: a schema as JSON text, and what stands before each value."""

    schema: str
    prefix: bytes = b""


@cache
def encoder(schema: str) -> Encoder:
    """One for each schema and process."""
    return Encoder(json.loads(schema))


def encode_into(values: list[Any], records: Any, schemas: Mapping[str, OutputSchema]) -> dict[int, str]:
    """Fill in the values of outputs that are records; returns the errors by place."""
    errors: dict[int, str] = {}
    for name, column in zip([field.name for field in records.type], records.flatten(), strict=True):
        topic = name.partition(":")[2]
        held = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if not len(held):
            continue
        schema = schemas[topic]
        found, wrong = encoder(schema.schema).encode(column.take(pa.array(held)))
        for place, value, error in zip(held.tolist(), found, wrong, strict=True):
            if error is not None:
                errors[place] = error
            else:
                values[place] = schema.prefix + (value or b"") if schema.prefix else value
    return errors


def by_row(errors: Mapping[int, str], ends: Iterable[int]) -> dict[int, str]:
    """Errors of outputs as errors of their source rows; `ends` says where the outputs of each row end."""
    rows = np.searchsorted(np.fromiter(ends, np.int64), list(errors), side="right")
    found: dict[int, str] = {}
    for row, error in zip(rows.tolist(), errors.values(), strict=True):
        found.setdefault(row, error)
    return found
