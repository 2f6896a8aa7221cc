"""One way to break the product: lines of a module, changed while it is imported, in a test process alone.

Each line to be changed must be there exactly once: a mutant that no longer fits the product is an error.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from textwrap import indent
from typing import NamedTuple


class Mutant(NamedTuple):
    """One way to break the product; `changes` maps a line to what stands in its place, at the same depth."""

    name: str
    module: str
    changes: dict[str, str]
    test: str

    def source(self) -> str:
        """Return the broken source of its module."""
        lines = self.path().read_text(encoding="utf-8").splitlines()
        for sound, broken in self.changes.items():
            at = [number for number, line in enumerate(lines) if line.strip() == sound]
            if len(at) != 1:
                msg = f"mutant {self.name}: {self.module} holds this line {len(at)} times instead of once: {sound}"
                raise LookupError(msg)
            old = lines[at[0]]
            lines[at[0]] = indent(broken, old[: len(old) - len(old.lstrip())])
        return "\n".join(lines)

    def path(self) -> Path:
        """Return the file of its module."""
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            msg = f"mutant {self.name}: there is no module {self.module}"
            raise LookupError(msg)
        return Path(spec.origin)

    def apply(self) -> None:
        """Import the module broken; it must not have been imported before, or others would keep its sound parts."""
        if self.module in sys.modules:
            msg = f"mutant {self.name}: {self.module} is already imported"
            raise LookupError(msg)
        code = compile(self.source(), str(self.path()), "exec")
        parent, _, leaf = self.module.rpartition(".")
        package = importlib.import_module(parent)
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(self.module, None))
        module.__file__ = str(self.path())
        sys.modules[self.module] = module
        exec(code, module.__dict__)  # noqa: S102  our own text
        setattr(package, leaf, module)
