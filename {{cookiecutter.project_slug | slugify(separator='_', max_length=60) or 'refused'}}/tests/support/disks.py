"""Disks that are too small: a file system of its own size, mounted for one test, and what fills it."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTE = 1_000_000


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a disk of this size at a folder that is made for it; only root may, others skip the test."""
    place.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],  # noqa: S607  found by PATH
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk to fill: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # noqa: S607  found by PATH


def fill(path: Path) -> None:
    """Leave not a byte free, in the file system of a path."""
    with path.open("wb", buffering=0) as file:
        for size in (MEGABYTE, 1):
            with suppress(OSError):  # no room for more
                while file.write(bytes(size)):
                    pass
