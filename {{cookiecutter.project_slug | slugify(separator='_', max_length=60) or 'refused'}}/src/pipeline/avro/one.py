"""The scan of a single value, byte by byte: for the few that do not go through the scan of whole columns.

Guarantee: the same judgement as `scan.py`, word for word; no recursion deeper than the limit, no allocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.avro.limits import LIMITS, Limits, told

if TYPE_CHECKING:
    from pipeline.avro.node import Node

LONGEST_VARINT = 10
INT_RANGE = range(-(2**31), 2**31)


class Unsound(Exception):
    """Why a value is not sound."""


def wrong(node: Node, what: str) -> str:
    """A detail with its field."""
    return f"field {node.path}: {what}" if node.path else what


def cut(node: Node) -> str:
    """The value ends too early, or a length lies."""
    return wrong(node, "the value ends within it")


def out_of_range(node: Node) -> str:
    """A number that the type does not have."""
    names = {"enum": "an enum index out of range", "union": "a union index out of range"}
    return wrong(node, names.get(node.kind, "a number beyond 32 bits"))


def bad_number(node: Node) -> str:
    """A varint that no writer makes."""
    return wrong(node, "a number that is cut off, over-long or too large")


def bad_text(node: Node) -> str:
    """Bytes that are no text."""
    return wrong(node, "text that is not valid UTF-8")


def bad_truth(node: Node) -> str:
    """A byte that is neither true nor false."""
    return wrong(node, "a truth value that is not 0 or 1")


def lying_count(node: Node) -> str:
    """A count that the bytes cannot hold."""
    return wrong(node, "more items than bytes are left")


def too_deep(limits: Limits) -> str:
    """Deeper than allowed."""
    return told(LIMITS, f"nested deeper than codec.max_depth = {limits.depth}")


def too_many(limits: Limits) -> str:
    """More items than allowed."""
    return told(LIMITS, f"more items than codec.max_items = {limits.items}")


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class One:
    """A walk through one value; `position` is behind what was walked."""

    def __init__(self, data: bytes, position: int, end: int, items: int, limits: Limits) -> None:
        """Walk `data` from `position` to `end`; `items` were counted before."""
        self._data, self.position, self._end = data, position, end
        self.items = items
        self._limits = limits

    def walk(self, node: Node, depth: int) -> None:  # noqa: C901  one for each kind
        """Move past one value of the type."""
        kind = node.kind
        if kind in {"record", "array", "map"} and depth > self._limits.depth:
            raise Unsound(too_deep(self._limits))
        if kind == "record":
            for child in node.children:
                self.walk(child, depth + 1)
        elif kind in {"array", "map"}:
            self.blocks(node, depth, 0)
        elif kind == "union":
            index = self._number(node)
            if not 0 <= index < len(node.children):
                raise Unsound(out_of_range(node))
            self.walk(node.children[index], depth)
        elif kind in {"string", "bytes"}:
            self._text(node, text=kind == "string")
        elif kind in {"int", "enum"}:
            if self._number(node) not in (INT_RANGE if kind == "int" else range(len(node.symbols))):
                raise Unsound(out_of_range(node))
        elif kind == "long":
            self._number(node)
        else:
            self._skip(node, node.width)
            if kind == "boolean" and self._data[self.position - 1] > 1:
                raise Unsound(bad_truth(node))

    def blocks(self, node: Node, depth: int, left: int) -> None:
        """Move past the rest of an array or map, in whose open block `left` items follow."""
        child = node.children[0]
        width = child.width + (node.kind == "map")
        while True:
            if left == 0:
                left = self._count(node, width)
                if left == 0:
                    return
                if width == 0:
                    left = 0
                    continue
            left -= 1
            if node.kind == "map":
                self._text(node, text=True)
            self.walk(child, depth + 1)

    def _count(self, node: Node, width: int) -> int:
        count = self._number(node)
        if count < 0:
            count = -count
            self._number(node)
        if count >= 2**63 or (width and count > self._end - self.position):
            raise Unsound(lying_count(node))
        self.items += count
        if self.items > self._limits.items:
            raise Unsound(too_many(self._limits))
        return count

    def _text(self, node: Node, *, text: bool) -> None:
        length = self._number(node)
        if length < 0:
            raise Unsound(cut(node))
        self._skip(node, length)
        if text and not is_text(self._data[self.position - length : self.position]):
            raise Unsound(bad_text(node))

    def _skip(self, node: Node, length: int) -> None:
        self.position += length
        if self.position > self._end:
            raise Unsound(cut(node))

    def _number(self, node: Node) -> int:
        value = 0
        for place in range(LONGEST_VARINT):
            if self.position >= self._end:
                break
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:  # noqa: PLR2004  the bit that says there is more
                if (byte == 0 and place) or (place == LONGEST_VARINT - 1 and byte > 1):
                    break
                return (value >> 1) ^ -(value & 1)
        raise Unsound(bad_number(node))
