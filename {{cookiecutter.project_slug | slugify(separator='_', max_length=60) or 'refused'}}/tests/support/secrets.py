"""Where a secret could be seen while a job runs: all of it is gathered, to be searched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from tests.support.program import settings_file
from tests.support.running import ROOT

from pipeline.local.processes import tree
from pipeline.observe.watch import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.job import App
    from tests.support.running import Running

# The first page of Spark's takes long on a busy machine.
SECONDS = 120
PAGES = ("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/")
API = "/api/v1/applications"
DETAILS = re.compile(r"/(?:SQL/execution|StreamingQuery/statistics|jobs/job|stages/stage)/\?[^\"' >]+")
# Of each kind of page a few tell all.
MOST_DETAILS = 12


class Places(dict[str, bytes]):
    """What was found, by where."""

    def naming(self, word: str) -> list[str]:
        """Return where a word stands."""
        return [place for place, content in self.items() if word.encode() in content]


def found_in(job: Running, app: App, ui_port: int, folders: Iterable[Path]) -> Places:
    """Gather logs, files, command lines, metrics, settings as shown, and all that Spark's pages and its API tell."""
    found = left_by(job, folders)
    found["metrics"] = _fetched(f"{endpoint_of(app.settings)}/metrics")
    found["repr"] = repr(app.settings).encode()
    found["settings"] = _shown(app)
    for pid in tree(job.pid):
        line = Path(f"/proc/{pid}/cmdline")
        if line.exists():
            found[f"command line of {pid}"] = line.read_bytes()
    for place, content in _pages(f"http://127.0.0.1:{ui_port}"):
        found[place] = content
    return found


def left_by(job: Running, folders: Iterable[Path]) -> Places:
    """Gather what a job leaves behind: its log, and the files of these folders but for the secret itself."""
    found = Places({"log": job.log.encode()})
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != "secret":
                found[str(path)] = path.read_bytes()
    return found


def _pages(root: str) -> Iterator[tuple[str, bytes]]:
    details: set[str] = set()
    for page in PAGES:
        content = _fetched(f"{root}{page}")
        details |= set(DETAILS.findall(content.decode(errors="replace").replace("&amp;", "&")))
        yield page, content
    for page in sorted(details)[:MOST_DETAILS]:
        yield page, _fetched(f"{root}{page}")
    listed = _fetched(f"{root}{API}")
    [name] = re.findall(rb'"id" : "([^"]+)"', listed)
    for part in ("environment", "sql?details=true&planDescription=true&length=20", "jobs", "stages", "allexecutors"):
        yield f"{API}/{part}", _fetched(f"{root}{API}/{name.decode()}/{part}")


def _fetched(url: str) -> bytes:
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except HTTPError as error:
        return error.read()


def _shown(app: App) -> bytes:
    """Return what `pipeline settings` prints."""
    path = settings_file(app.folder, app.settings)
    command = [sys.executable, "-m", "pipeline", "settings", "--settings", str(path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, env=environ, check=True, timeout=60).stdout
