"""The identity headers of a batch of records, taken out of Arrow without a Python object per header.

Guarantee: a header's value is the bytes that the upstream sent, or the beginning of what is too long to be a stamp; one
that comes twice in a record is reported, so that no stamp is ever chosen between two. Spark's own way (a lambda over
the headers, per name) took longer than all else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from pipeline.lanes.identity import MAX_PRODUCER_ID_BYTES

if TYPE_CHECKING:
    from pipeline.settings import Identity

# One byte more than any part of an identity has: enough to be refused, and a header of a megabyte is never copied.
STAMP_BYTES = MAX_PRODUCER_ID_BYTES + 1


class Stamps(NamedTuple):
    """Columns of values, None where a record has no such header, and which records have one of them twice."""

    producer_id: list[bytes | None]
    producer_epoch: list[bytes | None]
    txn_id: list[bytes | None]
    seq: list[bytes | None]
    repeated: list[bool]


def stamps(headers: Any, names: Identity) -> Stamps:
    """Read the four identity headers from a column of header lists; a record may have none at all."""
    count = len(headers)
    flat = headers.flatten()
    keys, values = flat.flatten()
    records = pc.list_parent_indices(headers).to_numpy()
    contents = pc.binary_slice(values, 0, STAMP_BYTES).to_numpy(zero_copy_only=False)
    repeated = np.zeros(count, dtype=bool)
    columns: list[list[bytes | None]] = []
    for name in (names.producer_id, names.producer_epoch, names.txn_id, names.seq):
        named = pc.equal(keys, name).to_numpy(zero_copy_only=False).astype(bool)
        column = np.full(count, None, dtype=object)
        column[records[named]] = contents[named]
        repeated |= np.bincount(records[named], minlength=count) > 1
        columns.append(column.tolist())
    producer_id, producer_epoch, txn_id, seq = columns
    return Stamps(producer_id, producer_epoch, txn_id, seq, repeated.tolist())
