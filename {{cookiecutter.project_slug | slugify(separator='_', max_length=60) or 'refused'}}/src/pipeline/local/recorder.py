"""A record of a run: what its endpoint says every second, and what was done to it, as one JSON object per line.

Guarantee: it only looks. A second in which the job does not answer is recorded as such: silence is data as well.
"""

from __future__ import annotations

import json
import threading
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from pipeline.errors import PipelineError
from pipeline.local.node import free_ports
from pipeline.observe.scrape import scrape

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from pipeline.observe.scrape import Scrape

EVERY_SECONDS = 1.0
TOTALS = {
    "read": "pipeline_records_read_total",
    "written": "pipeline_records_written_total",
    "hits": "pipeline_dedup_hits_total",
    "dead": "pipeline_dead_letters_total",
    "skipped": "pipeline_records_skipped_total",
    "lag": "pipeline_lag_records",
}


class Recorder:
    """Scrapes one port of this machine into a file; without a file it does nothing, and its port is 0."""

    def __init__(self, path: Path | None) -> None:
        """Choose a free port; the job that is to be recorded must be told."""
        self.port = free_ports(1)[0].client if path is not None else 0
        self._path = path
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        """Begin a new file."""
        if self._path is not None:
            self._path.write_text("", encoding="utf-8")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        if self._path is not None:
            self._thread.join()

    def mark(self, what: str, text: str = "") -> None:
        """Note something that was done to the job."""
        self._write({"mark": what, "text": text})

    def _work(self) -> None:
        while not self._ended.wait(EVERY_SECONDS - time.time() % EVERY_SECONDS):
            try:
                self._write(figures(scrape(f"http://127.0.0.1:{self.port}")))
            except (PipelineError, HTTPException):  # the latter: killed while it answered
                self._write({"down": True})

    def _write(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": round(time.time(), 3), **line}) + "\n")


def figures(seen: Scrape) -> dict[str, Any]:
    """What one scrape says; a job that has not taken its lanes over says nothing yet."""
    if not seen.samples.get(TOTALS["read"]):
        return {"starting": True}
    commits = seen.buckets("pipeline_transaction_phase_seconds", phase="commit")
    return {
        **{name: seen.total(metric) for name, metric in TOTALS.items() if metric in seen.samples},
        "run": seen.total("pipeline_run"),
        "commits": {f"{bound:g}": count for bound, count in sorted(commits.items())},
    }
