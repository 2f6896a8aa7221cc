"""`pipeline watch`: a running job in a terminal, live.

Guarantee: everything shown comes from the job's own endpoint, as Prometheus would see it; it costs the job a scrape.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipeline.errors import BadSettings, PipelineError
from pipeline.observe import families as known
from pipeline.observe.scrape import Buckets, Scrape, quantile, scrape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.settings import Settings

# Rates and latencies are those of this long.
WINDOW_SECONDS = 30.0
COLUMNS = ("lane", "next offset", "lag", "lag s", "read/s", "written/s", "dedup hits", "dead letters")
# Names to listen on that are not names to connect to.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  compared, not bound


@dataclass(frozen=True)
class Lane:
    """One lane; None where it is not known."""

    lane: int
    next_offset: int
    lag_records: int | None
    lag_seconds: float | None
    read_per_second: float | None
    written_per_second: float | None
    dedup_hits: int
    dead_letters: int


@dataclass(frozen=True)
class View:
    """What is shown: the newest scrape, with rates and latencies since the oldest."""

    app: str
    topic: str
    run: int
    ready: str
    lanes: Sequence[Lane]
    commit_seconds: tuple[float | None, float | None]  # p50 and p99, as are those below
    end_to_end_seconds: tuple[float | None, float | None]
    batch_seconds: tuple[float | None, float | None]
    transactions: dict[str, int]
    skipped: int

    @classmethod
    def between(cls, old: Scrape, new: Scrape) -> View:
        """Compare two scrapes; of a single one there are no rates."""
        info = next((labels for labels, _ in new.labelled(known.INFO.name)), {})
        run = next(iter(new.labelled(known.RUN.name)), ({}, 0.0))
        return cls(
            app=info.get("app", "?"),
            topic=run[0].get("topic", "?"),
            run=int(run[1]),
            ready=new.ready,
            lanes=_lanes(old, new),
            commit_seconds=_quantiles(old, new, known.PHASE_SECONDS.name, phase="commit"),
            end_to_end_seconds=_quantiles(old, new, known.LATENCY_SECONDS.name),
            batch_seconds=_quantiles(old, new, known.BATCH_SECONDS.name),
            transactions={key: int(count) for key, count in new.by(known.TRANSACTIONS.name, "outcome").items()},
            skipped=int(new.total(known.SKIPPED.name)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        return asdict(self)

    def shown(self) -> Group:
        """A table of the lanes, with their sum, and what is of the whole job above and below."""
        table = Table(*COLUMNS)
        for column in table.columns:
            column.justify = "right"
        for lane in self.lanes:
            table.add_row(*_cells(lane), end_section=lane is self.lanes[-1])
        if self.lanes:
            table.add_row("all", *_cells(_sum(self.lanes))[1:], style="bold")
        style = "green" if self.ready == "ready" else "red"
        ends = "  ".join(f"{outcome} {count}" for outcome, count in self.transactions.items() if count)
        return Group(
            Text.assemble(f"{self.app}  {self.topic}  run {self.run}  ", (self.ready, style)),
            table,
            f"commit {_shown(self.commit_seconds)}   end to end {_shown(self.end_to_end_seconds)}   "
            f"batch {_shown(self.batch_seconds)}",
            f"transactions: {ends or 'none yet'}   skipped as replayed: {self.skipped}",
        )


def endpoint_of(settings: Settings) -> str:
    """Where the job with these settings answers."""
    if not settings.metrics.port:
        msg = "metrics.port = 0: the job has no endpoint to watch; set a port, and start it again"
        raise BadSettings(msg)
    host = EVERYWHERE.get(settings.metrics.address, settings.metrics.address)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.metrics.port}"


def look_once(endpoint: str) -> View:
    """One look: no rates, and latencies since the job began."""
    now = scrape(endpoint)
    return View.between(now, now)


def watch_live(endpoint: str, every: float, console: Console) -> None:
    """Look again and again until Ctrl-C; a job that ended or is not up yet is waited for."""
    scrapes: deque[Scrape] = deque()
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(refreshed(scrapes, endpoint), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            return


def refreshed(scrapes: deque[Scrape], endpoint: str) -> Group | Text:
    """Take one more scrape into the window, and show it."""
    try:
        scrapes.append(scrape(endpoint))
    except PipelineError as error:
        scrapes.clear()
        return Text(str(error), style="red")
    while scrapes[-1].at - scrapes[0].at > WINDOW_SECONDS:
        scrapes.popleft()
    return View.between(scrapes[0], scrapes[-1]).shown()


def _lanes(old: Scrape, new: Scrape) -> list[Lane]:
    lag, age = new.lanes(known.LAG_RECORDS.name), new.lanes(known.LAG_SECONDS.name)
    hits, letters = new.lanes(known.DEDUP_HITS.name), new.lanes(known.DEAD_LETTERS.name)
    read, written = (_rates(old, new, family.name) for family in (known.READ, known.WRITTEN))
    return [
        Lane(
            lane,
            int(offset),
            int(lag[lane]) if lane in lag else None,
            age.get(lane),
            read.get(lane),
            written.get(lane),
            int(hits.get(lane, 0)),
            int(letters.get(lane, 0)),
        )
        for lane, offset in sorted(new.lanes(known.NEXT_OFFSET.name).items())
    ]


def _rates(old: Scrape, new: Scrape, name: str) -> dict[int, float]:
    """Per second and lane; figures of lanes never fall, so there is no reset to think of."""
    seconds, before = new.at - old.at, old.lanes(name)
    if seconds <= 0:
        return {}
    return {lane: (count - before.get(lane, count)) / seconds for lane, count in new.lanes(name).items()}


def _quantiles(old: Scrape, new: Scrape, name: str, **labels: str) -> tuple[float | None, float | None]:
    """Of what was observed in between; if there was nothing, or the job began anew, since the job began."""
    after, before = new.buckets(name, **labels), old.buckets(name, **labels)
    between: Buckets = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    if any(count < 0 for count in between.values()) or not any(between.values()):
        between = after
    return quantile(0.5, between), quantile(0.99, between)


def _sum(lanes: Sequence[Lane]) -> Lane:
    def total(values: Sequence[float | None]) -> float | None:
        held = [value for value in values if value is not None]
        return sum(held) if held else None

    ages = [lane.lag_seconds for lane in lanes if lane.lag_seconds is not None]
    lags = total([lane.lag_records for lane in lanes])
    return Lane(
        -1,
        sum(lane.next_offset for lane in lanes),
        None if lags is None else int(lags),
        max(ages, default=None),
        total([lane.read_per_second for lane in lanes]),
        total([lane.written_per_second for lane in lanes]),
        sum(lane.dedup_hits for lane in lanes),
        sum(lane.dead_letters for lane in lanes),
    )


def _cells(lane: Lane) -> list[str]:
    return [
        str(lane.lane),
        f"{lane.next_offset:,}",
        "-" if lane.lag_records is None else f"{lane.lag_records:,}",
        "-" if lane.lag_seconds is None else f"{lane.lag_seconds:.1f}",
        "-" if lane.read_per_second is None else f"{lane.read_per_second:,.0f}",
        "-" if lane.written_per_second is None else f"{lane.written_per_second:,.0f}",
        f"{lane.dedup_hits:,}",
        f"{lane.dead_letters:,}",
    ]


def _shown(quantiles: tuple[float | None, float | None]) -> str:
    p50, p99 = ("-" if value is None else f"{value * 1000:,.0f} ms" for value in quantiles)
    return f"p50 {p50}, p99 {p99}"
