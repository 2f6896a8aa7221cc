"""Fetches jars from a Maven repository with the Ivy that pyspark ships: no Maven needed.

Guarantee: none about the content; `jars` checks every file. Here: progress on stderr while jars arrive,
and one error that holds Ivy's own words when they do not.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline.errors import PipelineError
from pipeline.local.java import java

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A mirror of Maven Central, for machines that do not reach it; empty = Ivy's own default.
MIRROR = "PIPELINE_MAVEN"
# Where output is not a terminal, a line for each so many jars: enough to see that it moves.
LINE_EVERY = 10
TAIL = 15
SIZE = re.compile(r"\((\d+)kB\)")
NOISE = ("::::::", "-----", "|", ":: USE VERBOSE")


@dataclass(frozen=True)
class Wanted:
    """What to fetch: coordinates `organisation:name:version`, with or without what they depend on."""

    title: str
    coordinates: Sequence[str]
    transitive: bool = False
    leave_out: Sequence[str] = ()


def fetch(wanted: Wanted, into: Path, cache: Path) -> None:
    """Put every wanted jar at `into/<organisation>/<name>/<version>.jar`; a broken run may be repeated."""
    cache.mkdir(parents=True, exist_ok=True)
    settings, module = cache / "ivysettings.xml", cache / "ivy.xml"
    settings.write_text(_settings(usepoms=wanted.transitive), encoding="utf-8")
    module.write_text(_module(wanted), encoding="utf-8")
    pattern = f"{into}/[organisation]/[artifact]/[revision].[ext]"
    # Type "bundle" too, or scala-logging is missing.
    options = ["-settings", settings, "-cache", cache, "-ivy", module, "-types", "jar", "bundle", "-retrieve", pattern]
    command = [java(), "-cp", str(_ivy_jar()), "org.apache.ivy.Main", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        if ivy.stdout is None:  # pragma: no cover
            raise AssertionError
        try:
            said = _show(wanted, ivy.stdout)
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode:
        why = "\n".join(said)
        msg = (
            f"fetching the {wanted.title} jars failed: is the network up? Run again to go on where it stopped; a mirror"
            f" is set with {MIRROR}=<url>, a proxy with JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=<host>. Ivy said:\n{why}"
        )
        raise PipelineError(msg)


def _ivy_jar() -> Path:
    # Found without importing pyspark, which takes longer than all else here.
    spec = importlib.util.find_spec("pyspark")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")) if spec and spec.origin else []
    if not found:
        msg = "pyspark with its Ivy jar is not installed in this Python: install the project (pip install -e .)"
        raise PipelineError(msg)
    return found[-1]


def _settings(*, usepoms: bool) -> str:
    # One plain resolver: Spark's own chain fails when a local Maven cache is half filled. Pinned jars need no POMs.
    mirror = os.environ.get(MIRROR)
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" usepoms="{str(usepoms).lower()}"{root}/>'
        "</resolvers></ivysettings>\n"
    )


def _module(wanted: Wanted) -> str:
    return "\n".join(
        [
            '<ivy-module version="2.0"><info organisation="pipeline" module="jars"/>',
            '<configurations><conf name="default"/></configurations><dependencies>',
            *(_dependency(coordinate, transitive=wanted.transitive) for coordinate in wanted.coordinates),
            *(f"<exclude module={quoteattr(name)}/>" for name in wanted.leave_out),
            "</dependencies></ivy-module>\n",
        ]
    )


def _dependency(coordinate: str, *, transitive: bool) -> str:
    org, name, rev = map(quoteattr, coordinate.split(":"))
    return f'<dependency org={org} name={name} rev={rev} conf="default" transitive="{str(transitive).lower()}"/>'


@dataclass
class _Seen:
    jars: int = 0
    kilobytes: int = 0
    said: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    def take(self, line: str) -> bool:
        """Note a line of Ivy's; True when one more jar has arrived."""
        text = line.strip().lstrip(".").strip()
        size = SIZE.fullmatch(text)
        if size:
            self.kilobytes += int(size[1])
        elif text and not text.startswith(NOISE):
            self.said.append(text)
        arrived = "[SUCCESSFUL ]" in text and ".jar" in text
        self.jars += arrived
        return arrived

    def megabytes(self) -> str:
        return f"{self.kilobytes / 1024:.0f} MB"


def _show(wanted: Wanted, lines: Iterable[str]) -> list[str]:
    seen = _Seen()
    console = Console(stderr=True)
    total = None if wanted.transitive else len(wanted.coordinates)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[size]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{wanted.title} jars", total=total, size="")
        for line in lines:
            if not seen.take(line):
                continue
            progress.update(task, completed=seen.jars, size=seen.megabytes())
            if not console.is_terminal and (seen.jars % LINE_EVERY == 0 or seen.jars == total):
                sys.stderr.write(f"{wanted.title} jars: {seen.jars} of {total or '?'}, {seen.megabytes()}\n")
    return list(seen.said)
