"""Whether a reader's schema can read what a writer's schema writes, by Avro's rules of resolution.

Guarantee: a mismatch is told with its field, at start; fastavro would tell it record by record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.avro.one import wrong

if TYPE_CHECKING:
    from pipeline.avro.node import Node

PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def mismatch(writer: Node, reader: Node, seen: frozenset[tuple[int, int]] = frozenset()) -> str | None:  # noqa: PLR0911  one for each rule
    """Why some value of the writer cannot be read; None if all can."""
    pair = (id(writer), id(reader))
    if pair in seen:
        return None
    seen |= {pair}
    if writer.kind == "union":
        found = [mismatch(branch, reader, seen) for branch in writer.children]
        return next((why for why in found if why is not None), None)
    if reader.kind == "union":
        if any(mismatch(writer, branch, seen) is None for branch in reader.children):
            return None
        return wrong(reader, f"the writer's {writer.kind} is none of its types")
    if writer.kind == "record" and reader.kind == "record":
        return _records(writer, reader, seen)
    if writer.kind == reader.kind:
        return _same_kind(writer, reader, seen)
    if reader.kind in PROMOTED.get(writer.kind, ()):
        return None
    return wrong(reader, f"the writer has {writer.kind}, the reader {reader.kind}")


def _records(writer: Node, reader: Node, seen: frozenset[tuple[int, int]]) -> str | None:
    fields = dict(zip(writer.names, writer.children, strict=True))
    for name, child in zip(reader.names, reader.children, strict=True):
        if name in fields:
            if (why := mismatch(fields[name], child, seen)) is not None:
                return why
        elif name not in reader.defaults:
            return wrong(child, "the writer does not have it, and the reader has no default")
    return None


def _same_kind(writer: Node, reader: Node, seen: frozenset[tuple[int, int]]) -> str | None:
    if (writer.logical, writer.precision, writer.scale) != (reader.logical, reader.precision, reader.scale) and (
        "decimal" in {writer.logical, reader.logical} or "timestamp" in writer.logical + reader.logical
    ):
        return wrong(reader, f"the writer's {writer.logical or writer.kind} is another logical type")
    if writer.kind in {"array", "map"}:
        return mismatch(writer.children[0], reader.children[0], seen)
    if writer.kind == "fixed" and writer.size != reader.size:
        return wrong(reader, f"the writer has {writer.size} bytes, the reader {reader.size}")
    if writer.kind == "enum" and not reader.defaults and not set(writer.symbols) <= set(reader.symbols):
        lacking = ", ".join(sorted(set(writer.symbols) - set(reader.symbols)))
        return wrong(reader, f"the reader's enum lacks {lacking}")
    return None
