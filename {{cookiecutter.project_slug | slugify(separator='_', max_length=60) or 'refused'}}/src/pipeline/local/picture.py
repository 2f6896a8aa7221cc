"""Draws a recorded run: throughput, lag, what was kept out, commit latency, with every kill marked.

Guarantee: all axes begin at 0, gaps are gaps, and every curve ends at the figure that is written beside it. Readable on
light and dark pages. `python -m pipeline.local.picture run.jsonl demo.svg`
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.local.run_record import WINDOW_SECONDS, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pipeline.local.run_record import Stretches

WIDTH, LEFT, RIGHT = 960, 84, 160
HEAD, PLOT, GAP, FOOT = 148, 92, 54, 58
TICKS = 8
CLOSE_SECONDS = 2.0
STARTING_WIDTH = 76
# End labels nearer to each other than a line of text would overlap.
LINE = 15

STYLE = """
  svg { --page: #f8fafc; --ink: #1f2937; --note: #4b5563; --grid: #e2e8f0; --quiet: #e9eef5; --kill: #dc2626;
        --one: #2563eb; --two: #d97706; --three: #0d9488; --four: #7c3aed; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0f172a; --ink: #f1f5f9; --note: #a8b3c4; --grid: #26334a; --quiet: #1a2540; --kill: #f87171;
          --one: #60a5fa; --two: #fbbf24; --three: #2dd4bf; --four: #a78bfa; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 12.5px; }
  text { fill: var(--note); }
  .title { font-size: 18px; font-weight: 600; fill: var(--ink); }
  .name { font-size: 14px; font-weight: 600; fill: var(--ink); }
  .page { fill: var(--page); } .quiet { fill: var(--quiet); }
  .grid { stroke: var(--grid); } .axis { stroke: var(--note); }
  .kill { stroke: var(--kill); stroke-width: 1.5; stroke-dasharray: 5 4; }
  .killed { fill: var(--kill); font-weight: 600; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; } .area { stroke: none; opacity: 0.16; }
  .bridge { fill: none; stroke-width: 1.2; stroke-dasharray: 1.5 4; stroke-linecap: round; }
"""


@dataclass(frozen=True)
class Curve:
    """One curve: its colour, what is written at its end, whether it goes on where it was after a gap."""

    colour: str
    label: str
    points: Stretches
    goes_on: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves on one axis."""

    name: str
    note: str
    shown: Callable[[float], str]
    curves: Sequence[Curve]

    @property
    def top(self) -> float:
        """The highest value, rounded up to what people count in."""
        highest = max((value for curve in self.curves for part in curve.points for _, value in part), default=1.0)
        return nice(highest or 1.0)


def nice(value: float) -> float:
    """The next of 1, 2, 3, 4, 5, 6, 8 times a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def panels(record: RunRecord) -> list[Panel]:
    """What is drawn."""
    p50, p99 = record.commit_quantile(0.5), record.commit_quantile(0.99)
    over = f"last {WINDOW_SECONDS:.0f} s"
    return [
        Panel(
            "Throughput",
            f"source records in a second, mean of the {over}",
            count,
            [Curve("one", f"{count(record.last('read'))} read", record.rate("read"), filled=True)],
        ),
        Panel(
            "Lag",
            "source records not yet settled",
            count,
            [Curve("four", f"{count(record.last('lag'))} left", record.figure("lag"), goes_on=True, filled=True)],
        ),
        Panel(
            "Kept out",
            "so far; a kill resets no counter",
            count,
            [
                Curve("two", f"{count(record.last('hits'))} dedup hits", record.figure("hits"), goes_on=True),
                Curve("three", f"{count(record.last('dead'))} dead letters", record.figure("dead"), goes_on=True),
            ],
        ),
        Panel(
            "Commit latency",
            f"of the transactions of the {over}",
            milliseconds,
            [Curve("two", "p99", p99), Curve("one", "p50", p50)],
        ),
    ]


def count(value: float) -> str:
    """A number as people write it."""
    return f"{value:,.0f}"


def milliseconds(value: float) -> str:
    """A time as people write it."""
    return f"{value * 1000:,.0f} ms"


def draw(record: RunRecord) -> str:
    """The whole picture."""
    drawn = panels(record)
    height = HEAD + len(drawn) * (PLOT + GAP) - GAP + FOOT
    bottoms = [HEAD + place * (PLOT + GAP) + PLOT for place in range(len(drawn))]
    inside = [
        *head(record),
        *shades(record, bottoms),
        *(line for panel, bottom in zip(drawn, bottoms, strict=True) for line in body(record, panel, bottom)),
        *kills(record, bottoms),
        *foot(record, height),
    ]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-labelledby="title desc">'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="14"/>'
    return "\n".join([opening, f"<style>{STYLE}</style>", page, *inside, "</svg>\n"])


def across(record: RunRecord, seconds: float) -> float:
    """From seconds to the place on the page."""
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / record.seconds


def written(x: float, y: float, content: str, look: str = "", anchor: str = "start") -> str:
    """One line of text."""
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def head(record: RunRecord) -> Iterator[str]:
    """Title and verdict."""
    kills = len(record.marked("kill"))
    times = {0: "undisturbed", 1: "killed once in mid-transaction", 2: "killed twice in mid-transaction"}
    title = f"One run of the demo, {times.get(kills, f'killed {kills} times in mid-transaction')}"
    audits = record.marked("audit")
    verdict = audits[-1].text.removeprefix("audit: ") if audits else "none was made"
    verdict = re.sub(r"\d+", lambda number: count(int(number.group())), verdict)
    yield f'<title id="title">{escape(title)}</title>'
    yield f'<desc id="desc">Throughput, lag, dedup hits, commit latency over time. Audit: {escape(verdict)}</desc>'
    yield written(24, 38, title, "title")
    yield written(24, 60, f"Scraped every second from the job's own endpoint. The audit at the end: {verdict}.")


def shades(record: RunRecord, bottoms: Sequence[int]) -> Iterator[str]:
    """Where the job was dead or starting."""
    for first, last in record.silences():
        left, right = across(record, first), across(record, last)
        for bottom in bottoms:
            yield f'<rect class="quiet" x="{left:.1f}" y="{bottom - PLOT}" width="{right - left:.1f}" height="{PLOT}"/>'
        if right - left > STARTING_WIDTH:
            yield written((left + right) / 2, bottoms[0] - PLOT / 2 + 4, "Spark starts", anchor="middle")


def kills(record: RunRecord, bottoms: Sequence[int]) -> Iterator[str]:
    """Every kill, through all panels."""
    for mark in record.marked("kill"):
        x = across(record, mark.at)
        beside = [other.what for other in record.marks if 0 <= other.at - mark.at < CLOSE_SECONDS and other is not mark]
        yield written(x + 6, HEAD - 46, ", ".join(["SIGKILL", *beside]), "killed")
        yield f'<path class="kill" d="M{x:.1f} {HEAD - 54}V{HEAD - 32}"/>'
        yield from (f'<path class="kill" d="M{x:.1f} {bottom - PLOT}V{bottom}"/>' for bottom in bottoms)


def body(record: RunRecord, panel: Panel, bottom: int) -> Iterator[str]:
    """One panel: name, three lines with their values, curves, labels."""
    yield (
        f'<text x="{LEFT}" y="{bottom - PLOT - 14}"><tspan class="name">{escape(panel.name)}</tspan>'
        f'<tspan dx="8">{escape(panel.note)}</tspan></text>'
    )
    for part in (0, 0.5, 1):
        y = bottom - PLOT * part
        yield f'<path class="{"grid" if part else "axis"}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield written(LEFT - 8, y + 4, panel.shown(panel.top * part), anchor="end")
    for curve in panel.curves:
        yield from trace(record, curve, panel.top, bottom)
    yield from ends(panel, bottom)


def trace(record: RunRecord, curve: Curve, top: float, bottom: int) -> Iterator[str]:
    """One curve: its stretches, and dotted between them where it goes on."""
    placed = [[(across(record, at), bottom - PLOT * value / top) for at, value in part] for part in curve.points]
    for part in placed:
        path = " ".join(f"{x:.1f} {y:.1f}" for x, y in part)
        if curve.filled:
            area = f"M{part[0][0]:.1f} {bottom}L{path}L{part[-1][0]:.1f} {bottom}Z"
            yield f'<path class="area" style="fill: var(--{curve.colour})" d="{area}"/>'
        yield f'<path class="line" style="stroke: var(--{curve.colour})" d="M{path}"/>'
    for one, other in pairwise(placed if curve.goes_on else []):
        (x, y), (until, then) = one[-1], other[0]
        between = f"M{x:.1f} {y:.1f}L{until:.1f} {then:.1f}"
        yield f'<path class="bridge" style="stroke: var(--{curve.colour})" d="{between}"/>'


def ends(panel: Panel, bottom: int) -> Iterator[str]:
    """Labels beside the ends of the curves, from the top down, pushed apart where they would overlap."""
    lasts = [(bottom - PLOT * curve.points[-1][-1][1] / panel.top, curve) for curve in panel.curves if curve.points]
    lowest = -float("inf")
    for y, curve in sorted(lasts, key=lambda last: last[0]):
        lowest = max(y + 4, lowest + LINE)
        yield f'<circle cx="{WIDTH - RIGHT + 12}" cy="{lowest - 4:.1f}" r="4" style="fill: var(--{curve.colour})"/>'
        yield written(WIDTH - RIGHT + 22, lowest, curve.label)


def foot(record: RunRecord, height: int) -> Iterator[str]:
    """The axis of time."""
    step = nice(record.seconds / TICKS)
    for tick in range(ceil(record.seconds / step)):
        yield written(across(record, tick * step), height - FOOT + 20, f"{tick * step:.0f}", anchor="middle")
    yield written((LEFT + WIDTH - RIGHT) / 2, height - 16, "seconds since the first start", anchor="middle")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a record into a file."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.local.picture", description=main.__doc__)
    parser.add_argument("record", type=Path, help="written by `pipeline demo --record`")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    given = parser.parse_args(arguments)
    try:
        given.picture.write_text(draw(RunRecord.read(given.record)), encoding="utf-8")
    except PipelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
