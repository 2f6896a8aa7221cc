"""Print what the template and its projects need, one requirement a line, for pip.

The pins stand in one place each: the template's in its own pyproject.toml, the project's in the project's,
which is valid TOML before it is rendered. Needs nothing but Python 3.11.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def requirements(root: Path = ROOT) -> list[str]:
    """Collect the requirements of both."""
    template = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    [file] = root.glob("*cookiecutter.*/pyproject.toml")
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return [
        *template["dependency-groups"]["template"],
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in requirements()))
