"""Reads the record of a run, and works out what a picture of it shows.

Guarantee: nothing is invented. Rates and quantiles are of one process and of the seconds stated; where the job did not
answer there is no value, and where it goes on is where its lanes say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pipeline.errors import PipelineError
from pipeline.observe.scrape import quantile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WINDOW_SECONDS = 10.0
# Two scrapes further apart than this have a gap between them.
GAP_SECONDS = 3.0

# Stretches without a gap; a point is seconds since the beginning, and a value.
Stretches = list[list[tuple[float, float]]]


@dataclass(frozen=True)
class Mark:
    """Something that was done to the job."""

    at: float
    what: str
    text: str


@dataclass(frozen=True)
class RunRecord:
    """All scrapes that were answered, by second, and all marks."""

    scrapes: list[dict[str, Any]]
    marks: list[Mark]
    seconds: float

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read the lines of a recorder."""
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        scrapes = [line for line in lines if "read" in line]
        if not scrapes:
            msg = f"{path}: no scrape in it; record a run with `pipeline demo --record {path}`"
            raise PipelineError(msg)
        began = lines[0]["at"]
        marks = [Mark(line["at"] - began, line["mark"], line["text"]) for line in lines if "mark" in line]
        answered = [{**line, "at": line["at"] - began} for line in scrapes]
        return cls(answered, marks, answered[-1]["at"])

    def marked(self, what: str) -> list[Mark]:
        """Marks of one kind."""
        return [mark for mark in self.marks if mark.what == what]

    def last(self, name: str) -> int:
        """A figure as it was at the end."""
        return int(self.scrapes[-1].get(name, 0))

    def silences(self) -> list[tuple[float, float]]:
        """When no lane was told of: the job was dead, or starting."""
        times = [0.0, *(scrape["at"] for scrape in self.scrapes)]
        return [(one, other) for one, other in pairwise(times) if other - one > GAP_SECONDS]

    def figure(self, name: str) -> Stretches:
        """A figure as it was scraped."""
        return self._stretches(lambda scrape, _: scrape.get(name))

    def rate(self, name: str) -> Stretches:
        """Growth in a second, over the last window of the same process."""

        def grown(scrape: dict[str, Any], earlier: dict[str, Any]) -> float:
            passed = scrape["at"] - earlier["at"]
            return (scrape[name] - earlier[name]) / passed if passed else 0.0

        return self._stretches(grown)

    def commit_quantile(self, share: float) -> Stretches:
        """Commit latency of the last window of the same process; none, where nothing was committed."""

        def within(scrape: dict[str, Any], earlier: dict[str, Any]) -> float | None:
            before = earlier["commits"]
            return quantile(share, {float(bound): count - before[bound] for bound, count in scrape["commits"].items()})

        return self._stretches(within)

    def _stretches(self, value: Callable[[dict[str, Any], dict[str, Any]], float | None]) -> Stretches:
        found: Stretches = []
        last = -GAP_SECONDS
        for place, scrape in enumerate(self.scrapes):
            got = value(scrape, self._earlier(place))
            if got is None:
                continue
            if scrape["at"] - last > GAP_SECONDS:
                found.append([])
            found[-1].append((scrape["at"], got))
            last = scrape["at"]
        return found

    def _earlier(self, place: int) -> dict[str, Any]:
        """The first scrape of the same process within the window."""
        now = self.scrapes[place]
        while place and self._same(self.scrapes[place - 1], now):
            place -= 1
        return self.scrapes[place]

    def _same(self, earlier: dict[str, Any], now: dict[str, Any]) -> bool:
        return bool(earlier["run"] == now["run"] and now["at"] - earlier["at"] <= WINDOW_SECONDS)
