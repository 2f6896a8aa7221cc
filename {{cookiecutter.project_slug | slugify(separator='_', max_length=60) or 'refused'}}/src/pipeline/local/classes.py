"""An archive of the classes that Spark loads at each start: `python -m pipeline.local.classes` makes it, once.

Java reads, checks and links some ten thousand classes from two hundred jars before Spark's first task, half of the CPU
of a start. From the archive (class data sharing) they come in one piece. It lies in the virtual environment, since it
is good for the jars of this place only; Java itself passes over one that does not fit, and where there is none Spark
starts as it always did.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.local.jars import jars
from pipeline.local.java import java

# A start and an end of Spark, and the writing of the archive.
MAKE_SECONDS = 300.0
# Of what does not fit Java would complain on standard output.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def archive(program: str) -> Path:
    """Where the archive for this Java, this Spark and this connector lies, if it was made."""
    home = Path(program).resolve().parent.parent
    key = "\n".join([version("pyspark"), str(home), _release(home), *map(str, jars("spark"))])
    return Path(sys.prefix) / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"


def java_options(program: str) -> str:
    """What this Java is told when it runs Spark, so that it takes the archive."""
    path = archive(program)
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path.is_file() and " " not in str(path) else ""


def make() -> Path:
    """Let a Spark that does a little of everything write down what it has loaded; whole or not at all."""
    program = java()
    path = archive(program)
    if path.is_file():
        return path
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        _run(sys.executable, "-m", "pipeline.local.first_start", f"-XX:ArchiveClassesAtExit={unfinished} {QUIET}")
        # One that a full disk has cut off would end every Java that takes it: better this one.
        _run(program, f"-XX:SharedArchiveFile={unfinished}", *QUIET.split(), "-version")
        unfinished.rename(path)
    except (OSError, subprocess.SubprocessError) as error:
        msg = f"no archive of Spark's classes was made ({type(error).__name__}); each start takes some seconds longer"
        raise PipelineError(msg) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=MAKE_SECONDS, check=True, capture_output=True)


def _release(home: Path) -> str:
    """What tells one Java from another at the same place."""
    try:
        return (home / "release").read_text(encoding="utf-8")
    except OSError:
        return ""


def main() -> None:
    """Make the archive if it is not there; without it all works, only slower."""
    try:
        sys.stdout.write(f"Spark's classes: {make()}\n")
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main()
