"""By what the results of a shuffled batch are made: the user's code, and the settings that say which records count.

Guarantee: two runs have the same digests only if they make the same results of the same records, as far as files and
settings tell. So a batch that some lanes have is never finished by other code, which may give a result another key, and
with it another lane; behind `window` dedup lanes are source partitions, whatever the code. What only says where results
may go (output.topics, schemas of outputs, limits of topics) is left out: a result that stops a batch half-way must have
a remedy.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.flow.codec import Codec
    from pipeline.settings import Settings

# Of the project's own code: to be raised whenever a record or result gets another lane than before.
LAYOUT = 1
CODEC = {"input", "input_framing", "max_bytes", "max_items", "max_depth"}


def code_of(function: Callable[..., Any] | None) -> bytes:
    """Sixteen bytes for the user's function: its file, and all that it imports of the same package.

    None where no code of the user's has a say in which lane a result belongs to.
    """
    found = hashlib.sha256(str(LAYOUT).encode())
    if function is None:
        return found.digest()[:16]
    found.update(f" {function.__module__} {function.__qualname__} ".encode())
    for name, text in sorted(sources(function.__module__).items()):
        found.update(f"{name} {hashlib.sha256(text.encode()).hexdigest()} ".encode())
    return found.digest()[:16]


def settings_of(settings: Settings, codec: Codec) -> bytes:
    """Sixteen bytes for what decides whether a record is sound, late or known, and by which schema it is read."""
    given: dict[str, Any] = {
        "path": settings.flow.path,
        "codec": settings.codec.model_dump(include=CODEC),
        "schemas": [codec.reader.schema, codec.writer],
    }
    if settings.flow.path == "windows":
        given["windows"] = settings.windows.model_dump(exclude={"late_topic"})
    else:
        given["dedup"] = settings.dedup.model_dump(include={"strategy", "id_column", "horizon_seconds"})
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).digest()[:16]


def sources(name: str) -> dict[str, str]:
    """The text of a module, and of those of its package that it imports, they too, and so on."""
    package = name.partition(".")[0]
    found: dict[str, str] = {}
    left = [name]
    while left:
        module = left.pop()
        if module not in found and module.partition(".")[0] == package and (text := _source(module)) is not None:
            found[module] = text
            left += _imported(text)
    return found


def _imported(text: str) -> Iterator[str]:
    """Names that may be modules: of `from a import b` both a and a.b."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _source(name: str) -> str | None:
    """The text of a module, also out of an archive; none of what is no module, or has none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a function or constant of a module that is no package; a script
        return None
    loader: Any = None if spec is None else spec.loader
    text = loader.get_source(name) if hasattr(loader, "get_source") else None
    return None if text is None else str(text)
