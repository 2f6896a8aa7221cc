"""Draws the results of the benchmarks as one SVG, with the colours and letters of the demo's picture.

All axes begin at 0, and every figure that is drawn is written beside it or on its axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pipeline.local.picture import STYLE, count, nice, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, LEFT, RIGHT = 960, 170, 150
HEAD, LINES, GAP, FOOT = 84, 130, 62, 18
BAR, BAR_GAP = 16, 6
COLOURS = ("one", "two", "three", "four")
BAR_STYLE = "\n  .bar { rx: 2px; } .dot { opacity: 0.7; }\n"


@dataclass(frozen=True)
class Chart:
    """Curves over an axis, or bars; not both. A curve is its label and its points; a bar its label, value and text."""

    name: str
    note: str
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()
    across: str = ""
    bars: Sequence[tuple[str, float, str]] = field(default_factory=list)

    @property
    def height(self) -> int:
        """How much room it takes."""
        return LINES + 24 if self.curves else len(self.bars) * (BAR + BAR_GAP)


def charts(results: dict[str, Any]) -> Iterator[Chart]:
    """What there is to draw."""
    drawn = {
        "throughput": _throughput,
        "latency": _latency,
        "start": _start,
        "growth": _growth,
        "overhead": _overhead,
    }
    for part, charts_of in drawn.items():
        if part in results:
            yield from charts_of(results[part])


def _throughput(result: dict[str, Any]) -> Iterator[Chart]:
    curves = [(f"run {place}", run["progress"]) for place, run in enumerate(result["runs"], start=1)]
    steady = result["steady"]
    note = f"committed records; in the median {count(steady['median'])} a second from first to last"
    yield Chart("Throughput", note, curves=curves, across="seconds since the start of the process")


def _latency(result: dict[str, Any]) -> Iterator[Chart]:
    points = [(float(share), value) for share, value in enumerate(result["curve"], start=1)]
    note = f"ms from the making of a record to its reader, at {count(result['rate'])} records a second"
    label = f"p50 {result['p50']:.0f}, p99 {result['p99']:.0f}"
    yield Chart("Latency", note, curves=[(label, points)], across="per cent of the records")
    own = [("from batch to batch", result["cycle_ms"]), ("batch", result["batch_ms"])]
    own += [("a lane's transaction", result["transaction_ms"]), *result["phases_ms"].items()]
    yield Chart("Of this time", "means, ms", bars=[(name, value, f"{value:,.0f}") for name, value in own])


def _start(result: dict[str, Any]) -> Iterator[Chart]:
    names = {"start": "start", "recovery": "recovery after SIGKILL"}
    bars = [(label, result[name]["median"], f"{result[name]['median']:.1f} s") for name, label in names.items()]
    yield Chart("Start", "seconds to the first, and to the next committed record", bars=bars)


def _growth(result: dict[str, Any]) -> Iterator[Chart]:
    largest = {row["lanes"]: row for row in sorted(result["lanes"], key=itemgetter("batch"))}
    rows = [(_lanes(number), row) for number, row in largest.items()]
    rows += [(f"{count(row['producers'])} producers", row) for row in result["producers"]]
    rows += [(f"{count(row['records'])} records", row) for row in result["records"]]
    bars = [(label, row["rate"]["median"]) for label, row in rows]
    note = "records a second; lanes in the largest of their batches"
    yield Chart("Growth", note, bars=[(label, rate, count(rate)) for label, rate in bars])
    cost = result["cost"]
    lanes = sorted({point["lanes"] for point in cost["points"]})
    curves = [
        (_lanes(number), sorted((p["records"], p["ms"]) for p in cost["points"] if p["lanes"] == number))
        for number in lanes[: len(COLOURS)]
    ]
    fitted = (
        f"ms; fitted: {cost['us_per_record']:.1f} us a record, {cost['ms_per_lane']:.1f} ms a lane, "
        f"{cost['ms_per_batch']:.0f} ms a batch"
    )
    yield Chart("Cost of a batch", fitted, curves=curves, across="records in the batch")
    memory = result["memory"]
    note = f"MB of Java process and Python workers; {memory['rise_mb_per_minute']:+.1f} MB a minute in the second half"
    yield Chart("Memory", note, curves=[("longest run", memory["points"])], across="seconds")


def _lanes(number: int) -> str:
    return f"{number} lane" if number == 1 else f"{number} lanes"


def _overhead(result: dict[str, Any]) -> Iterator[Chart]:
    bars = [
        (row["step"], row["us"]["median"], f"{row['us']['median']:.1f} us, {row['to_first']['median']:.2f} x")
        for row in result["steps"]
    ]
    yield Chart("Overhead of each guarantee", "time for a record", bars=bars)


def draw(results: dict[str, Any]) -> str:
    """The whole picture."""
    drawn = list(charts(results))
    height = HEAD + sum(chart.height + GAP for chart in drawn) - GAP // 2 + FOOT
    inside = [written(24, 38, "Benchmarks of the pipeline", "title"), written(24, 58, about(results))]
    top = HEAD + 20
    for chart in drawn:
        inside += body(chart, top)
        top += chart.height + GAP
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title"><title id="title">Benchmarks of the pipeline</title>'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="14"/>'
    return "\n".join([opening, f"<style>{STYLE}{BAR_STYLE}</style>", page, *inside, "</svg>\n"])


def about(results: dict[str, Any]) -> str:
    """Where it was measured."""
    machine = results["machine"]
    return f"{machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB; broker on the same machine"


def body(chart: Chart, top: float) -> Iterator[str]:
    """One chart."""
    yield (
        f'<text x="{LEFT}" y="{top - 12}"><tspan class="name">{escape(chart.name)}</tspan>'
        f'<tspan dx="8">{escape(chart.note)}</tspan></text>'
    )
    yield from lines(chart, top) if chart.curves else bars_of(chart, top)


def bars_of(chart: Chart, top: float) -> Iterator[str]:
    """Bars, one below the other."""
    highest = max(value for _, value, _ in chart.bars) or 1.0
    for place, (label, value, text) in enumerate(chart.bars):
        y = top + place * (BAR + BAR_GAP)
        width = (WIDTH - LEFT - RIGHT) * max(value, 0.0) / highest
        yield written(LEFT - 8, y + BAR - 4, label, anchor="end")
        yield f'<rect class="bar" style="fill: var(--one)" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        yield written(LEFT + width + 8, y + BAR - 4, text)


def lines(chart: Chart, top: float) -> Iterator[str]:
    """Curves with their axes."""
    points = [point for _, curve in chart.curves for point in curve]
    right, high = nice(max(x for x, _ in points) or 1.0), nice(max(y for _, y in points) or 1.0)
    bottom = top + LINES
    for part in (0, 0.5, 1):
        y, x = bottom - LINES * part, LEFT + (WIDTH - LEFT - RIGHT) * part
        yield f'<path class="{"grid" if part else "axis"}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield written(LEFT - 8, y + 4, count(high * part), anchor="end")
        yield written(x, bottom + 18, f"{right * part:,.9g}" + (f" {chart.across}" if part == 1 else ""), anchor="end")
    for place, (label, curve) in enumerate(chart.curves):
        colour = COLOURS[place % len(COLOURS)]
        placed = [(LEFT + (WIDTH - LEFT - RIGHT) * x / right, bottom - LINES * y / high) for x, y in curve]
        path = " ".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        yield f'<path class="line" style="stroke: var(--{colour})" d="M{path}"/>'
        yield from (
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5" style="fill: var(--{colour})"/>'
            for x, y in placed
            if len(placed) < LINES
        )
        at = top + 10 + place * 18
        yield f'<circle cx="{WIDTH - RIGHT + 12}" cy="{at - 4}" r="4" style="fill: var(--{colour})"/>'
        yield written(WIDTH - RIGHT + 22, at, label)
