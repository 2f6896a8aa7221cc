"""An Avro schema as a tree that the scan, the columns and the encoder walk.

Guarantee: names are resolved, logical types are known ones on the right base, and nothing is deeper than `MAX_DEPTH`;
a schema that breaks this is refused with the path of its field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import fastavro

# A schema nested deeper than this is no description of data; one of 5,000 levels was seen to parse.
MAX_DEPTH = 64
MAX_DIGITS = 38
MAX_FIXED = 1_048_576
SHOWN_CHARACTERS = 100
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# Logical types that mean something here, by their base; any other is ignored, as Avro demands.
LOGICAL = {
    ("bytes", "decimal"),
    ("fixed", "decimal"),
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
}
WIDTHS = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


class BadSchema(Exception):
    """A schema that cannot be used here; its text names the field."""


@dataclass(eq=False)
class Node:
    """One type of a schema."""

    kind: str
    path: str
    logical: str = ""
    name: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    children: list[Node] = field(default_factory=list)
    # Names of fields that have a default; of an enum its default symbol.
    defaults: tuple[str, ...] = ()
    # Fewest bytes that a value takes, and whether the type contains itself.
    width: int = 0
    recursive: bool = False

    @property
    def branches(self) -> list[Node]:
        """The branches of a union that hold a value."""
        return [child for child in self.children if child.kind != "null"]

    @property
    def nullable(self) -> bool:
        """Whether null is a value of the type."""
        return self.kind == "null" or (self.kind == "union" and any(child.kind == "null" for child in self.children))

    @property
    def only(self) -> Node:
        """The type itself, or the one type that a union with null holds."""
        return self.branches[0] if self.kind == "union" and len(self.branches) == 1 else self


def tree(schema: Any) -> Node:
    """The tree of a schema as JSON holds it; whatever fastavro refuses is refused here too."""
    node = _Tree().node(schema, "", "")
    try:
        fastavro.parse_schema(schema, _write_hint=False)
    except Exception as error:  # noqa: BLE001  a schema from elsewhere may make it raise anything
        msg = f"not an Avro schema: {error}"
        raise BadSchema(msg) from None
    return node


def _refuse(path: str, schema: Any, what: str) -> BadSchema:
    shown = json.dumps(schema)[:SHOWN_CHARACTERS]
    return BadSchema(f"field {path}: {shown} {what}" if path else f"{shown} {what}")


class _Tree:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}
        self._open: list[Node] = []
        self._depth = 0

    def node(self, schema: Any, path: str, space: str) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            msg = f"nested deeper than {MAX_DEPTH} levels"
            raise BadSchema(msg)
        node = self._node(schema, path, space)
        self._depth -= 1
        return node

    def _node(self, schema: Any, path: str, space: str) -> Node:
        if isinstance(schema, list):
            return self._union(schema, path, space)
        if isinstance(schema, str):
            return self._reference(schema, path, space)
        kind = schema.get("type") if isinstance(schema, dict) else None
        if kind is None:
            raise _refuse(path, schema, "is no Avro type")
        if not isinstance(kind, str) or kind not in {*PRIMITIVES, "record", "enum", "fixed", "array", "map", "error"}:
            return self.node(kind, path, space)
        if kind in {"record", "error", "enum", "fixed"}:
            return self._name(schema, path, space)
        node = Node(kind, path)
        if kind in {"array", "map"}:
            node.children = [self.node(schema.get("items" if kind == "array" else "values"), path, space)]
            node.width = 1
        else:
            node.width = WIDTHS[kind]
            _logical(node, schema)
        return node

    def _union(self, schema: list[Any], path: str, space: str) -> Node:
        node = Node("union", path, width=1)
        node.children = [self.node(branch, path, space) for branch in schema]
        return node

    def _reference(self, name: str, path: str, space: str) -> Node:
        if name in PRIMITIVES:
            return Node(name, path, width=WIDTHS[name])
        found = self._named.get(name if "." in name or not space else f"{space}.{name}") or self._named.get(name)
        if found is None:
            raise _refuse(path, name, "is no Avro type")
        if found in self._open:
            for node in self._open[self._open.index(found) :]:
                node.recursive = True
        return found

    def _name(self, schema: dict[str, Any], path: str, space: str) -> Node:
        short = schema.get("name")
        if not isinstance(short, str):
            raise _refuse(path, schema, "needs a name")
        space = short.rpartition(".")[0] if "." in short else schema.get("namespace", space)
        name = short if "." in short or not space else f"{space}.{short}"
        node = Node({"error": "record"}.get(schema["type"], schema["type"]), path, name=name)
        self._named[name] = node
        if node.kind == "enum":
            node.symbols, node.width = tuple(schema.get("symbols") or ()), 1
            node.defaults = (schema["default"],) if "default" in schema else ()
        elif node.kind == "fixed":
            node.size = node.width = schema.get("size", 0)
            if not isinstance(node.size, int) or not 0 <= node.size <= MAX_FIXED:
                raise _refuse(path, schema, f"needs a size of at most {MAX_FIXED}")
            _logical(node, schema)
        else:
            self._fields(node, schema, space)
        return node

    def _fields(self, node: Node, schema: dict[str, Any], space: str) -> None:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(part, dict) and "name" in part for part in fields):
            raise _refuse(node.path, schema, "needs fields, each with name and type")
        self._open.append(node)
        node.names = tuple(part["name"] for part in fields)
        node.defaults = tuple(part["name"] for part in fields if "default" in part)
        node.children = [
            self.node(part.get("type"), f"{node.path}.{part['name']}".lstrip("."), space) for part in fields
        ]
        node.width = sum(child.width for child in node.children)
        self._open.pop()


def _logical(node: Node, schema: dict[str, Any]) -> None:
    logical = schema.get("logicalType", "")
    if (node.kind, logical) not in LOGICAL:
        return
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= MAX_DIGITS:
            raise _refuse(node.path, schema, f"needs a precision of at most {MAX_DIGITS}, and a scale within it")
        node.precision, node.scale = precision, scale
    node.logical = logical


def walk(node: Node, seen: set[int] | None = None) -> list[Node]:
    """Every type of the tree once."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return []
    seen.add(id(node))
    return [node, *(found for child in node.children for found in walk(child, seen))]


def bare(schema: Any) -> Any:
    """The schema without logical types: fastavro reads the bytes, Arrow makes whole columns of the values."""
    if isinstance(schema, list):
        return [bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if not isinstance(kind, str):
        return bare(kind)
    if kind in PRIMITIVES:
        return kind
    left_out = {"logicalType", "precision", "scale", "doc"}
    kept = {key: value for key, value in schema.items() if key not in left_out}
    if kind in {"record", "error"}:
        kept["fields"] = [
            {key: bare(value) if key == "type" else value for key, value in part.items() if key != "doc"}
            for part in schema["fields"]
        ]
    elif kind in {"array", "map"}:
        inner = "items" if kind == "array" else "values"
        kept[inner] = bare(schema[inner])
    return kept
