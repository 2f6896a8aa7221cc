"""Finds the Java that Spark and the embedded broker run on.

Guarantee: the path that comes back is a Java that starts and is new enough, looked up in the same
order as Spark's own scripts (JAVA_HOME, then PATH); anything else is one line that says what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from pipeline.errors import PipelineError

OLDEST = 17
REMEDY = f"install Java {OLDEST} or 21 (for example Eclipse Temurin), or point JAVA_HOME to one"
# A Java that hangs (a stub that opens a dialog) must not hang the program.
VERSION_SECONDS = 30.0
VERSION = re.compile(r'version "(?P<major>\d+)(?:\.(?P<minor>\d+))?[^"]*"')


def java() -> str:
    """Return the path of a Java that is new enough, or raise with what to install."""
    path = _find()
    major = _major(path)
    if major < OLDEST:
        msg = f"Java {major} at {path} is too old, {OLDEST} or newer is needed: {REMEDY}"
        raise PipelineError(msg)
    return path


def _find() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            msg = f"JAVA_HOME is {home}, but {path} is not a program: {REMEDY}"
            raise PipelineError(msg)
        return str(path)
    found = shutil.which("java")
    if found is None:
        msg = f"no Java found (JAVA_HOME is not set, no java on PATH): {REMEDY}"
        raise PipelineError(msg)
    return found


def _major(path: str) -> int:
    try:
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        # macOS has a /usr/bin/java that only says that there is no Java.
        msg = f"the Java at {path} does not start ({type(error).__name__}): {REMEDY}"
        raise PipelineError(msg) from error
    match = VERSION.search(run.stderr + run.stdout)
    if match is None:
        msg = f"the Java at {path} does not tell its version: {REMEDY}"
        raise PipelineError(msg)
    major = int(match["major"])
    # Up to Java 8 the version reads 1.8.0.
    return int(match["minor"]) if major == 1 and match["minor"] else major
