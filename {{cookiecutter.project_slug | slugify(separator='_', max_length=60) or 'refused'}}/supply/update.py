"""Take the newest packages that pyproject.toml allows, and the jars of the versions in jars.toml: all, or nothing.

Guarantee: unless every package and every jar could be had, lock files and pins are left as they were, and one line says
what was missing. A jar whose version stays must keep its checksum: nobody publishes a version twice.

Usage: python -m supply.update
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.local import jars
from supply.lock import LOCKS, ROOT, Unresolved, locks

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = (*(ROOT / name for name in LOCKS), jars.PINS)


class Stopped(Exception):
    """Why nothing was updated."""


def packages() -> None:
    """Write the lock files anew."""
    try:
        made = locks(upgrade=True)
    except Unresolved as error:
        msg = "uv could not resolve what pyproject.toml asks for, for the reason above"
        raise Stopped(msg) from error
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


def fetched() -> None:
    """Make sure that pip can have every package; what it downloads here it need not download again."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements-dev.lock")]
    if subprocess.run(command, check=False).returncode != 0:
        msg = "a package could not be fetched, for the reason above"
        raise Stopped(msg)


def pinned() -> None:
    """Pin the jars anew."""
    before = checksums()
    try:
        jars.pin()
    except PipelineError as error:
        raise Stopped(str(error)) from error
    changed = [jar for jar, sha256 in checksums().items() if before.get(jar, sha256) != sha256]
    if changed:
        msg = f"the repository has another file than before for {', '.join(changed)}: do not trust it"
        raise Stopped(msg)


def checksums() -> dict[str, str]:
    """Return the checksum of each jar that is pinned."""
    return {jar: sha256 for conf in jars.read_pins().values() for jar, sha256 in conf.sha256.items()}


def update(*steps: Callable[[], None]) -> None:
    """Take these steps, or leave no trace of them."""
    kept = {path: path.read_bytes() for path in FILES}
    try:
        for step in steps:
            step()
    except BaseException:
        for path, text in kept.items():
            path.write_bytes(text)
        raise


if __name__ == "__main__":
    try:
        update(packages, fetched, pinned)
    except Stopped as stopped:
        sys.exit(f"nothing was updated: {stopped}. Lock files and pins are as they were")
