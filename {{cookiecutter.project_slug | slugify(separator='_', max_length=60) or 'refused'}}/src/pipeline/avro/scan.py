"""A look at encoded values before anything is decoded: whole columns of them at once, in numpy.

Guarantee: a value that passes ends exactly at its last byte, has no more depth, items and bytes than the limits, no
over-long number, no index out of range, no broken UTF-8. Only such values reach fastavro, which would take 20 s for
six bytes that claim 10^9 nulls, and end the process on 20,000 levels. The scan itself allocates a few words per value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.avro.limits import LIMITS, TRAILING, Limits, told
from pipeline.avro.one import (
    LONGEST_VARINT,
    One,
    Unsound,
    bad_number,
    bad_text,
    bad_truth,
    cut,
    is_text,
    lying_count,
    out_of_range,
    too_deep,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.avro.node import Node

    Rows = Any  # arrays of numpy, whose types say nothing more

CONTINUED = 0x80
INT_LOW, INT_HIGH = -(2**31), 2**31 - 1
# Fewer values than this are cheaper to walk one by one: a step of numpy costs as much as about a hundred in Python.
FEW = 64
# A count is added up before it is compared: bounded, so that the sum cannot overflow.
COUNT_CAP = 2**40


def scan(node: Node, values: Sequence[bytes | None], limits: Limits) -> list[str | None]:
    """Say of each value why it is not sound; None if it is. A null is left to the caller."""
    errors: list[str | None] = [None] * len(values)
    rows, short = [], []
    for row, value in enumerate(values):
        if value is None:
            continue
        if len(value) > limits.bytes:
            errors[row] = told(LIMITS, f"{len(value)} bytes, more than codec.max_bytes = {limits.bytes}")
        else:
            rows.append(row)
            short.append(value)
    if rows:
        for row, error in _Scan(short, limits).run(node).items():
            errors[rows[row]] = error
    return errors


class _Scan:
    def __init__(self, values: list[bytes], limits: Limits) -> None:
        self._limits = limits
        self._data = b"".join(values)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self._end = lengths.cumsum()
        self._pos = self._end - lengths
        self._items = np.zeros(len(values), np.int64)
        # One byte behind the last: a position at the end of the last value can be looked at.
        self._buffer = np.frombuffer(self._data + b"\0", np.uint8)
        high = self._buffer >= CONTINUED
        self._high = np.concatenate(([0], high.cumsum())) if high.any() else None
        self._errors: dict[int, str] = {}

    def run(self, node: Node) -> dict[int, str]:
        alive = self._walk(node, np.arange(len(self._end)), 0)
        behind = self._end[alive] - self._pos[alive]
        for row, left in zip(alive[behind > 0].tolist(), behind[behind > 0].tolist(), strict=True):
            self._errors[row] = told(TRAILING, f"{left} bytes behind the value")
        return self._errors

    def _keep(self, rows: Rows, bad: Rows, error: str) -> Rows:
        """Note an error for the bad ones; returns which are not."""
        if bad.any():
            self._errors.update(dict.fromkeys(rows[bad].tolist(), error))
        return ~bad

    def _walk(self, node: Node, rows: Rows, depth: int) -> Rows:  # noqa: PLR0911  one for each kind
        """Move past one value of the type in each of these rows; returns the rows that were sound, in any order."""
        kind = node.kind
        if not len(rows) or kind == "null":
            return rows
        if node.children and len(rows) < FEW:
            return self._each(node, rows, depth, None)
        if kind in {"record", "array", "map"} and depth > self._limits.depth:
            return rows[self._keep(rows, np.ones(len(rows), bool), too_deep(self._limits))]
        if kind == "record":
            for child in node.children:
                rows = self._walk(child, rows, depth + 1)
            return rows
        if kind in {"array", "map"}:
            return self._blocks(node, rows, depth)
        if kind == "union":
            rows, index = self._indexed(node, rows, len(node.children))
            parts = [self._walk(child, rows[index == place], depth) for place, child in enumerate(node.children)]
            return np.concatenate(parts)
        return self._leaf(node, rows)

    def _leaf(self, node: Node, rows: Rows) -> Rows:
        kind = node.kind
        if kind == "long":
            return self._numbers(node, rows)[0]
        if kind == "string":
            return self._text(node, rows)
        if kind == "bytes":
            return self._sized(node, rows)[0]
        if kind == "enum":
            return self._indexed(node, rows, len(node.symbols))[0]
        if kind == "int":
            rows, values = self._numbers(node, rows)
            return rows[self._keep(rows, (values < INT_LOW) | (values > INT_HIGH), out_of_range(node))]
        rows = self._skip(node, rows, node.width)
        if kind == "boolean":
            rows = rows[self._keep(rows, self._buffer[self._pos[rows] - 1] > 1, bad_truth(node))]
        return rows

    def _each(self, node: Node, rows: Rows, depth: int, left: Rows | None) -> Rows:
        """Walk few rows one by one; `left` are the items of open blocks."""
        sound = []
        for row in rows.tolist():
            one = One(self._data, int(self._pos[row]), int(self._end[row]), int(self._items[row]), self._limits)
            try:
                if left is None:
                    one.walk(node, depth)
                else:
                    one.blocks(node, depth, int(left[row]))
            except Unsound as error:
                self._errors[row] = str(error)
            else:
                self._pos[row], self._items[row] = one.position, one.items
                sound.append(row)
        return np.array(sound, np.int64)

    def _skip(self, node: Node, rows: Rows, lengths: Rows | int) -> Rows:
        ends = self._pos[rows] + lengths
        keep = self._keep(rows, ends > self._end[rows], cut(node))
        rows, ends = rows[keep], ends[keep]
        self._pos[rows] = ends
        return rows

    def _numbers(self, node: Node, rows: Rows) -> tuple[Rows, Rows]:
        """Read a zigzag number in each row; returns the rows that had one, and the numbers."""
        pos, ends = self._pos[rows], self._end[rows]
        byte = self._buffer[pos]
        value = (byte & 0x7F).astype(np.uint64)
        bad = pos >= ends
        more = np.flatnonzero((byte >= CONTINUED) & ~bad)
        pos += 1
        for place in range(1, LONGEST_VARINT):
            if not len(more):
                break
            at = pos[more]
            over = at >= ends[more]
            byte = self._buffer[np.where(over, 0, at)]
            over |= (byte == 0) | (byte > (1 if place == LONGEST_VARINT - 1 else 0xFF))
            bad[more[over]] = True
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            pos[more] += 1
            more = more[(byte >= CONTINUED) & ~over]
        signed = (value >> np.uint64(1)).astype(np.int64) ^ -((value & np.uint64(1)).astype(np.int64))
        if bad.any():
            keep = self._keep(rows, bad, bad_number(node))
            rows, pos, signed = rows[keep], pos[keep], signed[keep]
        self._pos[rows] = pos
        return rows, signed

    def _indexed(self, node: Node, rows: Rows, size: int) -> tuple[Rows, Rows]:
        rows, index = self._numbers(node, rows)
        keep = self._keep(rows, (index < 0) | (index >= size), out_of_range(node))
        return rows[keep], index[keep]

    def _sized(self, node: Node, rows: Rows) -> tuple[Rows, Rows]:
        rows, lengths = self._numbers(node, rows)
        # Compared with what is left before it is added: a length of 2^63 would overflow.
        keep = self._keep(rows, (lengths < 0) | (lengths > self._end[rows] - self._pos[rows]), cut(node))
        rows, lengths = rows[keep], lengths[keep]
        self._pos[rows] += lengths
        return rows, lengths

    def _text(self, node: Node, rows: Rows) -> Rows:
        rows, lengths = self._sized(node, rows)
        if self._high is None:
            return rows
        ends = self._pos[rows]
        places = np.flatnonzero(self._high[ends] > self._high[ends - lengths])
        if not len(places):
            return rows
        bad = np.zeros(len(rows), bool)
        spans = zip(places.tolist(), (ends - lengths)[places].tolist(), ends[places].tolist(), strict=True)
        for place, start, end in spans:
            bad[place] = not is_text(self._data[start:end])
        return rows[self._keep(rows, bad, bad_text(node))]

    def _blocks(self, node: Node, rows: Rows, depth: int) -> Rows:
        """Walk arrays or maps: the first item of every row, then the second, and so on."""
        child = node.children[0]
        left = np.zeros(len(self._end), np.int64)
        sound = []
        while len(rows):
            if len(rows) < FEW:
                sound.append(self._each(node, rows, depth, left))
                break
            within = left[rows] > 0
            going, opened = rows[within], rows[~within]
            opened, counts = self._counts(node, opened)
            if child.width == 0 and node.kind == "array":  # nothing to walk: on to the next block
                sound.append(opened[counts == 0])
                rows = opened[counts > 0]
                continue
            left[opened] = counts
            sound.append(opened[counts == 0])
            going = np.concatenate((going, opened[counts > 0]))
            left[going] -= 1
            if node.kind == "map":
                going = self._text(node, going)
            rows = self._walk(child, going, depth + 1)
        return np.concatenate(sound)

    def _counts(self, node: Node, rows: Rows) -> tuple[Rows, Rows]:
        """Read the head of a block: its items, and behind a negative number also its bytes."""
        rows, counts = self._numbers(node, rows)
        negative = counts < 0
        if negative.any():
            sized, _ = self._numbers(node, rows[negative])
            keep = ~negative | np.isin(rows, sized)
            rows, counts = rows[keep], np.abs(counts[keep])
        # Nothing is allocated yet: so many items cannot follow in so few bytes. The least number has no absolute value.
        lies = counts < 0
        if node.kind == "map" or node.children[0].width:
            lies |= counts > self._end[rows] - self._pos[rows]
        keep = self._keep(rows, lies, lying_count(node))
        rows, counts = rows[keep], counts[keep]
        self._items[rows] += np.minimum(counts, COUNT_CAP)
        keep = self._keep(rows, self._items[rows] > self._limits.items, too_many(self._limits))
        return rows[keep], counts[keep]
