"""Write the lock files anew: every package that pyproject.toml asks for, down to the last, with hashes of its files.

requirements.lock is for the image, requirements-dev.lock for work on the project; what is in both has one version. They
hold for every system and for Python 3.11 or newer. Versions stay as they are locked, unless `--upgrade` is given.

Usage: python -m supply.lock [--upgrade]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = "3.11"
# What the image has beside the dependencies of the package: the extra of the registry, and what builds the package.
IMAGE_EXTRAS = ("registry",)
LOCKS = {
    "requirements.lock": "# Every package of the image, with hashes; written by `make lock`, never by hand.",
    "requirements-dev.lock": "# Every package for work on the project, with hashes; written by `make lock`.",
}


def wanted(pyproject: dict[str, Any], *, image: bool) -> list[str]:
    """Collect what is asked for; valid before the template is rendered as well, since no name is needed."""
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    chosen = IMAGE_EXTRAS if image else tuple(extras)
    return [
        *pyproject["build-system"]["requires"],
        *project["dependencies"],
        *(line for extra in chosen for line in extras[extra]),
    ]


class Unresolved(Exception):
    """What is asked for cannot be had; uv has said why."""


def resolve(lines: list[str], known: str, limits: str, *, upgrade: bool) -> str:
    """Return the lock of these lines, by uv; it keeps the versions of `known`, and to those of `limits` in any case."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--generate-hashes", "--quiet"]
    command += ["--no-header", "--no-annotate", "--python-version", OLDEST_PYTHON, *["--upgrade"] * upgrade]
    with tempfile.TemporaryDirectory() as folder:
        asked, limit, made = (Path(folder, name) for name in ("asked.txt", "limits.txt", "made.txt"))
        asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
        limit.write_text(limits, encoding="utf-8")
        made.write_text(known, encoding="utf-8")  # uv keeps the versions that it finds in its output
        command += [str(asked), "--constraint", str(limit), "--output-file", str(made)]
        if subprocess.run(command, check=False, cwd=folder).returncode != 0:
            raise Unresolved
        return made.read_text(encoding="utf-8")


def locks(*, upgrade: bool) -> dict[Path, str]:
    """Return what both files must hold; the second keeps to the versions of the first."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    made: dict[Path, str] = {}
    for path in (ROOT / name for name in LOCKS):
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = wanted(pyproject, image=not made)
        text = resolve(lines, known, "".join(made.values()), upgrade=upgrade)
        made[path] = f"{LOCKS[path.name]}\n{text}"
    return made


def main(arguments: list[str]) -> None:
    """Write both, or neither."""
    parser = argparse.ArgumentParser(prog="python -m supply.lock", description="Write the lock files anew.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    try:
        made = locks(upgrade=parser.parse_args(arguments).upgrade)
    except Unresolved:
        sys.exit("no lock was written: uv could not resolve what pyproject.toml asks for, for the reason above")
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
