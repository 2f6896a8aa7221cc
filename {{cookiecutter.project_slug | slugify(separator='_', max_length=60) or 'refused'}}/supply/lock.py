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


def compile_lock(lines: list[str], lock: Path, header: str, constraint: Path | None, *, upgrade: bool) -> None:
    """Resolve with uv, and write a lock."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--universal",
        "--generate-hashes",
        "--no-header",
        "--quiet",
    ]
    command += ["--no-annotate", "--python-version", OLDEST_PYTHON, *(["--upgrade"] if upgrade else [])]
    with tempfile.TemporaryDirectory() as folder:
        asked, made = Path(folder, "asked.txt"), Path(folder, "made.txt")
        asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if lock.exists():
            made.write_bytes(lock.read_bytes())  # uv keeps the versions that it finds in its output
        constraints = ["--constraint", str(constraint)] if constraint else []
        subprocess.run([*command, *constraints, str(asked), "--output-file", str(made)], check=True, cwd=folder)
        lock.write_text(f"{header}\n{made.read_text(encoding='utf-8')}", encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Write both; the second keeps to the versions of the first."""
    parser = argparse.ArgumentParser(prog="python -m supply.lock", description="Write the lock files anew.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    upgrade = parser.parse_args(arguments).upgrade
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    image, dev = (ROOT / name for name in LOCKS)
    compile_lock(wanted(pyproject, image=True), image, LOCKS[image.name], None, upgrade=upgrade)
    compile_lock(wanted(pyproject, image=False), dev, LOCKS[dev.name], image, upgrade=upgrade)


if __name__ == "__main__":
    main(sys.argv[1:])
