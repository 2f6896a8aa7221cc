"""The jars that pip does not bring: the Spark connector and the embedded broker, pinned in `jars.toml`.

Guarantee: every jar that is handed out had exactly the pinned SHA-256 when it was fetched, and there is none beside.
A folder of jars appears whole or not at all, also when two processes fetch at once; from then on neither Java nor
the network is touched. `python -m pipeline.local.jars` fetches all; `--pin` pins again after a change of version.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import PipelineError
from pipeline.local import ivy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = "PIPELINE_JARS"
PINS = Path(__file__).with_name("jars.toml")
MARK = "# --- checksums, written by --pin ---\n"
MANIFEST = "manifest.json"
REPIN = "python -m pipeline.local.jars --pin"


class Conf(NamedTuple):
    """One set of jars: what was asked for, and the checksum of each jar that it comes to."""

    name: str
    roots: tuple[str, ...]
    transitive: bool
    leave_out: tuple[str, ...]
    sha256: dict[str, str]

    def folder(self) -> Path:
        """Where its jars lie; other pins, other folder, so that nothing is ever overwritten."""
        digest = hashlib.sha256(json.dumps(self.sha256, sort_keys=True).encode()).hexdigest()
        return cache() / f"{self.name}-{digest[:12]}"


def jars(conf: str) -> list[Path]:
    """Return the jars of a conf ("broker" or "spark"), fetched on first use."""
    wanted = read_pins()[conf]
    folder = wanted.folder()
    if not folder.exists():
        with _alone(conf):
            # Another process may have fetched them while this one waited.
            if not folder.exists():
                _resolve(wanted, folder)
    return _reuse(folder)


def cache() -> Path:
    """Return the folder of all jars, outside the source tree."""
    if given := os.environ.get(FOLDER):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pipeline" / "jars"


def read_pins(path: Path | None = None) -> dict[str, Conf]:
    """Read the pin file."""
    pins = tomllib.loads((path or PINS).read_text(encoding="utf-8"))
    checksums = pins.pop("sha256", {})
    return {
        name: Conf(
            name, tuple(part["roots"]), part["transitive"], tuple(part["leave_out"]), dict(checksums.get(name, {}))
        )
        for name, part in pins.items()
    }


def pin(path: Path | None = None) -> None:
    """Resolve every root with what it depends on, and write the checksums into the pin file."""
    path = path or PINS
    lines = [path.read_text(encoding="utf-8").partition(MARK)[0] + MARK]
    for conf in read_pins(path).values():
        with _alone(conf.name):
            work = _work(conf.name)
            wanted = ivy.Wanted(conf.name, conf.roots, conf.transitive, conf.leave_out)
            ivy.fetch(wanted, work / "fetched", work / "ivy")
            found = _fetched(work / "fetched")
            lines.append(f"\n[sha256.{conf.name}]\n")
            lines.extend(f'"{coordinate}" = "{_sha256(jar)}"\n' for coordinate, jar in found.items())
            shutil.rmtree(work)
    path.write_text("".join(lines), encoding="utf-8")


def _resolve(conf: Conf, folder: Path) -> None:
    if not conf.sha256:
        msg = f"no checksums for {conf.name} in {PINS.name}: run {REPIN}"
        raise PipelineError(msg)
    work = _work(conf.name)
    ivy.fetch(ivy.Wanted(conf.name, tuple(conf.sha256)), work / "fetched", work / "ivy")
    found = _fetched(work / "fetched")
    try:
        _verify(conf, found)
    except PipelineError:
        # What was fetched is not to be trusted: not as a start for the next attempt either.
        shutil.rmtree(work)
        raise
    whole = work / "whole"
    whole.mkdir()
    for coordinate, jar in found.items():
        _, name, version = coordinate.split(":")
        jar.rename(whole / f"{name}-{version}.jar")
    sizes = {jar.name: jar.stat().st_size for jar in sorted(whole.iterdir())}
    (whole / MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    whole.rename(folder)
    shutil.rmtree(work)
    sys.stderr.write(f"{conf.name} jars: all {len(sizes)} match their checksums, kept in {folder}\n")


def _verify(conf: Conf, found: dict[str, Path]) -> None:
    faults = [f"{coordinate} is missing" for coordinate in conf.sha256.keys() - found.keys()]
    faults += [f"{coordinate} is not listed" for coordinate in found.keys() - conf.sha256.keys()]
    for coordinate in conf.sha256.keys() & found.keys():
        if (seen := _sha256(found[coordinate])) != conf.sha256[coordinate]:
            faults.append(f"{coordinate} has SHA-256 {seen}, pinned is {conf.sha256[coordinate]}")
    if faults:
        msg = (
            f"the {conf.name} jars are not those pinned in {PINS.name}: {'; '.join(sorted(faults))}. Nothing was kept. "
            f"Run again; if it stays so, do not trust the repository or mirror (after a change of version: {REPIN})"
        )
        raise PipelineError(msg)


def _reuse(folder: Path) -> list[Path]:
    # Sizes only: checksums of 50 MB at every start would cost more than they find, the full check was at fetch.
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        sizes = {}
    found = {jar.name: jar.stat().st_size for jar in folder.glob("*.jar")}
    if not sizes or found != sizes:
        differing = sorted(name for name in found.keys() | sizes.keys() if found.get(name) != sizes.get(name))
        msg = (
            f"the jars in {folder} were changed ({', '.join(differing) or MANIFEST}): delete that folder and run again"
        )
        raise PipelineError(msg)
    return [folder / name for name in sorted(found)]


def _fetched(folder: Path) -> dict[str, Path]:
    return {f"{jar.parent.parent.name}:{jar.parent.name}:{jar.stem}": jar for jar in sorted(folder.glob("*/*/*.jar"))}


def _work(name: str) -> Path:
    """Return the work folder, beside the final one; what Ivy downloaded before it failed is kept, the rest is not."""
    work = cache() / f".{name}-in-work"
    for part in ("fetched", "whole"):
        shutil.rmtree(work / part, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    return work


def _sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"{name} jars: waiting for another process that fetches them\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch all jars, or pin them anew."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.local.jars", description=main.__doc__)
    parser.add_argument("--pin", action="store_true", help="resolve again and rewrite the checksums in the pin file")
    try:
        if parser.parse_args(arguments).pin:
            pin()
        for conf in read_pins():
            found = jars(conf)
            sys.stdout.write(f"{conf}: {len(found)} jars in {found[0].parent}\n")
    except PipelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
