"""The identities of a batch of records, taken out of Arrow without a Python object per header.

Guarantee: what is read is what `identity.parse` reads of the same headers, record by record, and a header that comes
twice in a record makes its identity unsound, so that no stamp is ever chosen between two. A header of a megabyte is
never copied. Spark's own way (a lambda over the headers, per name) took longer than all else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.lanes.decimals import decimals, extents, valid
from pipeline.lanes.identity import INT_DIGITS, LONG_DIGITS, MAX_INT, MAX_LONG, MAX_PRODUCER_ID_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.sections import Identity


@dataclass(frozen=True, slots=True)
class Stamps:
    """Identities in columns: `producers` are places in `names`; where `sound` is false, all others mean nothing."""

    names: list[str]
    producers: NDArray[np.int64]
    epochs: NDArray[np.int64]
    txns: NDArray[np.int64]
    seqs: NDArray[np.int64]
    sound: NDArray[np.bool_]

    def cut(self, start: int, end: int) -> Stamps:
        """Those of the rows from `start` to `end`."""
        rows = slice(start, end)
        return Stamps(
            self.names, self.producers[rows], self.epochs[rows], self.txns[rows], self.seqs[rows], self.sound[rows]
        )


def stamps(headers: Any, names: Identity) -> Stamps:
    """Read the identity headers from a column of header lists; a record may have none at all."""
    count = len(headers)
    keys, values = headers.flatten().flatten()
    records = pc.list_parent_indices(headers).to_numpy()
    sound = np.ones(count, bool)

    def held(name: str) -> NDArray[np.int64]:
        """Where the headers of a name stand; a record that has two is not sound."""
        places = np.flatnonzero(pc.equal(keys, name).to_numpy(zero_copy_only=False))
        if len(places) > 1 and not (np.diff(records[places]) > 0).all():
            sound[np.bincount(records[places], minlength=count) > 1] = False
        return places

    def number(name: str, digits: int, highest: int, *, absent: bool = False) -> NDArray[np.int64]:
        """A column of numbers; a record without the header is sound only where it may be absent."""
        places = held(name)
        if absent:
            places = places[valid(values)[places]]
        column = np.zeros(count, np.int64)
        good = np.full(count, absent)
        column[records[places]], good[records[places]] = decimals(values, places, digits, highest)
        sound[~good] = False
        return column

    producer_ids, producers = _producers(values, held(names.producer_id), records, sound)
    return Stamps(
        producer_ids,
        producers,
        number(names.producer_epoch, LONG_DIGITS, MAX_LONG, absent=True),
        number(names.txn_id, LONG_DIGITS, MAX_LONG),
        number(names.seq, INT_DIGITS, MAX_INT),
        sound,
    )


def _producers(
    values: Any, places: NDArray[np.int64], records: NDArray[np.int64], sound: NDArray[np.bool_]
) -> tuple[list[str], NDArray[np.int64]]:
    """The different producers, and which one each record has; a record without a good one is marked as not sound."""
    lengths = extents(values)[1][places]
    places = places[(lengths > 0) & (lengths <= MAX_PRODUCER_ID_BYTES) & valid(values)[places]]
    found = values.take(pa.array(places)).dictionary_encode()
    texts = [_text(name) for name in found.dictionary.to_pylist()]
    codes = np.full(len(sound), -1, np.int64)
    codes[records[places]] = found.indices.to_numpy()
    if None in texts:
        codes[np.isin(codes, [code for code, text in enumerate(texts) if text is None])] = -1
    sound[codes < 0] = False
    return [text or "" for text in texts], codes


def _text(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
