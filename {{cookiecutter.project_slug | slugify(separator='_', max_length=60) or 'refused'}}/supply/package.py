"""Pack all that `spark-submit` needs into one folder, from what is installed here: no network, no pip.

    environment.tar.gz   lib/: this package, its locked dependencies; jars/: the connector; project/: settings, schemas
    main.py              what `spark-submit` is given

Guarantee: every package in it has exactly the version of `requirements.lock`, whose hashes were checked when it was
installed, every jar its checksum, and the same input gives the same bytes. PySpark itself is the cluster's. Limits:
compiled packages are those of this machine, so executors need the same system and the same Python, 3.11 for 3.11.

Usage: python -m supply.package [build/package]
"""

from __future__ import annotations

import gzip
import importlib.metadata
import re
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from pipeline.errors import PipelineError
from pipeline.local.jars import jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = Path("build/package")
ARCHIVE, MAIN = "environment.tar.gz", "main.py"
# Every cluster has these, in its own version of Spark; they would be two thirds of the archive.
OF_THE_CLUSTER = {"py4j", "pyspark"}
# Only builds need it: the image is rid of it.
TOOLS = {"setuptools"}
LOCKED = re.compile(r"^(?P<requirement>[A-Za-z0-9][^\\#\n]*==[^\\\n]*?)\s*\\?$", re.MULTILINE)
# Of no use where the program only runs, and a third of what is left.
LEFT_OUT = {"tests", "__pycache__", "include"}
QUICK = 1  # of gzip: higher ones take several times as long for a tenth less


def of_the_image() -> dict[str, str]:
    """Name and version of every package of the lock file that an image with this system and this Python keeps."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wanted = [Requirement(match["requirement"]) for match in LOCKED.finditer(text)]
    here = [need for need in wanted if need.marker is None or need.marker.evaluate()]
    return {need.name: next(iter(need.specifier)).version for need in here if need.name not in TOOLS}


def locked() -> dict[str, str]:
    """The same without what every cluster has itself."""
    return {name: version for name, version in of_the_image().items() if name not in OF_THE_CLUSTER}


def packages(wanted: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Every file of the packages, with its place in the archive; another version than is wanted is refused."""
    for name, version in sorted(wanted.items()):
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            msg = f"{name} {version} of requirements.lock is not installed here: make setup"
            raise PipelineError(msg) from None
        if installed.version != version:
            msg = f"{name} is {installed.version} here, but {version} in requirements.lock: make setup"
            raise PipelineError(msg)
        for file in installed.files or ():
            if ".." not in file.parts and not LEFT_OUT.intersection(file.parts):
                yield Path(str(file.locate())), f"lib/{file.as_posix()}"


def contents(wanted: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Every file of the archive."""
    yield from packages(wanted)
    for path in _files(ROOT / "src/pipeline"):
        yield path, f"lib/pipeline/{path.relative_to(ROOT / 'src/pipeline').as_posix()}"
    for jar in jars("spark"):
        yield jar, f"jars/{jar.parent.name}/{jar.name}"
    [folder] = {jar.parent for jar in jars("spark")}
    yield folder / "manifest.json", f"jars/{folder.name}/manifest.json"
    yield ROOT / "pipeline.toml", "project/pipeline.toml"
    for path in _files(ROOT / "schemas"):
        yield path, f"project/schemas/{path.relative_to(ROOT / 'schemas').as_posix()}"


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if not LEFT_OUT.intersection(path.relative_to(folder).parts))
    return sorted(path for path in found if path.is_file())


def pack(into: Path, wanted: Mapping[str, str] | None = None) -> Path:
    """Write the package; returns the archive. What is wanted are the locked versions, unless told otherwise."""
    into.mkdir(parents=True, exist_ok=True)
    archive, draft = into / ARCHIVE, into / f".{ARCHIVE}"
    with (
        draft.open("wb") as file,
        gzip.GzipFile("", "wb", QUICK, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path, name in contents(locked() if wanted is None else wanted):
            tar.add(path, name, recursive=False, filter=_anonymous)
    draft.replace(archive)  # whole or not at all
    (into / MAIN).write_bytes((ROOT / "supply/entry.py").read_bytes())
    return archive


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def main(arguments: list[str]) -> int:
    """Pack."""
    try:
        archive = pack(Path(arguments[0]) if arguments else DEFAULT)
    except PipelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
