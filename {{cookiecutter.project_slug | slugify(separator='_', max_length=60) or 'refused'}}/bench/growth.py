"""`python -m bench.growth`: what more lanes, more producers and more records do to speed and memory.

    python -m bench.growth                      about 80 s: up to 64 lanes, 20,000 producers, 300,000 records
    python -m bench.growth --long 1             20 minutes: 100,000 producers, 20,000,000 records, batches as shipped
    python -m bench.growth --long 1 --rounds 3  the series of lanes and of producers three times

Each series changes one thing and keeps the rest the same; rounds are in another order each, and ratios are of runs of
the same round. The time from the end of a batch to the end of the next is fitted as a * records + b * lanes + c, by
least squares over batches of several sizes and numbers of lanes; how far it is off is told. Memory is of the longest
run: Java process and Python workers, at every fifth of a second. Jobs run one after the other in one Spark, and each
output is read back: lost and duplicated must be 0.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.figures import fit, in_turn, spread, to_other
from bench.inside import Lap, app, run, spark_kept
from bench.machine import Sampler, flatness
from bench.peer import sections
from bench.stage import Stage, alone
from bench.tables import Column, number, table, with_spread
from bench.workload import Workload, delete, exact, fill
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.inside import Laps


@dataclass(frozen=True)
class Scale:
    """How far the series go."""

    lanes: tuple[int, ...]
    batches: tuple[int, ...]  # 0: as large as they are as shipped
    laps: int
    producers: tuple[int, ...]
    producer_records: int
    producer_batch: int
    records: tuple[int, ...]
    record_batch: int


AS_SHIPPED = 0
SHIPPED_LAPS = 3  # of batches that are large enough
QUICK = Scale((1, 8, 64), (2_000, 20_000), 5, (16, 1_600, 20_000), 100_000, 20_000, (100_000, 300_000), 50_000)
LONG = Scale(
    (1, 4, 16, 64),
    (2_000, 20_000, 200_000, AS_SHIPPED),
    8,
    (16, 1_600, 16_000, 100_000),
    1_000_000,
    200_000,
    (1_000_000, 5_000_000, 20_000_000),
    200_000,
)
PARTITIONS = 8


def measure(stage: Stage, long: int = 0, rounds: int = 1) -> dict[str, Any]:
    """All series, and the fit; those of lanes and of producers in so many rounds."""
    scale = LONG if long else QUICK
    with spark_kept():
        relayed(stage, Workload(PARTITIONS), 3 * scale.batches[1], scale.batches[1])  # the Java process warms up
        lanes, laps = by_lanes(stage, scale, rounds)
        producers = by_producers(stage, scale, rounds)
        records, memory = by_records(stage, scale)
    found = {"lanes": lanes, "producers": producers, "records": records, "memory": memory, "cost": cost(laps)}
    return {"rounds": rounds, **found}


def by_lanes(stage: Stage, scale: Scale, rounds: int) -> tuple[list[dict[str, Any]], list[Lap]]:
    """More and more lanes, in batches of each size."""
    done: dict[tuple[int, int], list[Laps]] = {(lanes, size): [] for lanes in scale.lanes for size in scale.batches}
    sizes = {(lanes, size): size or shipped(stage, lanes) for lanes, size in done}
    for lanes, size in in_turn(list(done), rounds):
        count = scale.laps if size else SHIPPED_LAPS
        found = relayed(stage, Workload(lanes), (count + 1) * sizes[lanes, size], size)
        done[lanes, size].append(found)
        stage.say(f"growth: {lanes} lanes, batches of {sizes[lanes, size]:,}: {found.rate:,.0f} records/s")
    rows = [
        {"lanes": lanes, "batch": sizes[lanes, size], **compared(runs, done[scale.lanes[0], size])}
        for (lanes, size), runs in done.items()
    ]
    return rows, [lap for runs in done.values() for run in runs for lap in run.laps]


def compared(runs: Sequence[Laps], first: Sequence[Laps]) -> dict[str, Any]:
    """Rates with their spread, and beside those of the first of a series, round by round."""
    rates = [run.rate for run in runs]
    return {
        "rate": spread(rates),
        "to_first": to_other(rates, [run.rate for run in first]),
        "batch_ms": median_ms([lap for run in runs for lap in run.laps]),
    }


def shipped(stage: Stage, lanes: int) -> int:
    """How large a batch of so many lanes is, as shipped."""
    given = {"BOOTSTRAP": stage.bootstrap, "IN_TOPIC": "in", "OUT_TOPIC": "out"}
    return build(sections(given)).most_offsets(lanes)


def by_producers(stage: Stage, scale: Scale, rounds: int) -> list[dict[str, Any]]:
    """The same records from more and more producers, each on one lane; the second half, when the ledgers know all."""
    done: dict[int, list[Laps]] = {producers: [] for producers in scale.producers}
    for producers in in_turn(scale.producers, rounds):
        load = Workload(PARTITIONS, producers=producers, apart=True)
        found = relayed(stage, load, scale.producer_records, scale.producer_batch)
        found.laps = found.laps[len(found.laps) // 2 :]
        done[producers].append(found)
        stage.say(f"growth: {producers:,} producers: {found.rate:,.0f} records/s")
    return [{"producers": producers, **compared(runs, done[scale.producers[0]])} for producers, runs in done.items()]


def by_records(stage: Stage, scale: Scale) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Longer and longer logs, and the memory of the longest run."""
    done: dict[int, list[Laps]] = {}
    rows, memory = [], {}
    for records in scale.records:
        with Sampler(os.getpid(), stage.broker_pid) as sampler:
            done[records] = [relayed(stage, Workload(PARTITIONS), records, scale.record_batch)]
        memory = flatness(sampler.moments)
        rows.append({"records": records, **compared(done[records], done[scale.records[0]]), **memory})
        stage.say(f"growth: {records:,} records: {done[records][0].rate:,.0f} records/s")
    return [{name: value for name, value in row.items() if name != "points"} for row in rows], memory


def relayed(stage: Stage, load: Workload, records: int, batch: int) -> Laps:
    """Fill a topic, relay it, count what came out, and delete both."""
    topic = stage.fresh("growth")
    fill(stage.topics, topic, records, load)
    settings = app(stage, topic, load.partitions, batch)
    laps = run(settings)
    (out,) = settings.output.topics
    exact(stage.bootstrap, out, load)
    delete(stage.topics, topic, out, settings.lane_topic, settings.output.dead_letter_topic)
    return laps


def cost(laps: Sequence[Lap]) -> dict[str, Any]:
    """Milliseconds of a batch as a * records + b * lanes + c, and how far that is off."""
    found = fit([(lap.records, lap.lanes, 1.0) for lap in laps], [lap.seconds * 1000 for lap in laps])
    a, b, c = found.factors
    shares = [abs(off) / (lap.seconds * 1000) for off, lap in zip(found.residuals, laps, strict=True)]
    return {
        "us_per_record": a * 1000,
        "ms_per_lane": b,
        "ms_per_batch": c,
        "r_squared": found.r_squared,
        "median_off": statistics.median(shares),
        "worst_off": max(shares),
        "batches": len(laps),
        "points": [
            {"records": lap.records, "lanes": lap.lanes, "ms": lap.seconds * 1000, "off_ms": off}
            for lap, off in zip(laps, found.residuals, strict=True)
        ],
    }


def median_ms(laps: Sequence[Lap]) -> float:
    """The usual time of a batch."""
    return statistics.median(lap.seconds for lap in laps) * 1000


def show(result: dict[str, Any]) -> str:
    """A table for each series, and the fit."""
    rate = (
        Column("rate", "records/s", with_spread(0)),
        Column("to_first", "of the first", with_spread(2)),
        Column("batch_ms", "batch, ms", number(0)),
    )
    memory = (Column("early_mb", "MB, 2nd quarter", number(0)), Column("late_mb", "MB, last quarter", number(0)))
    found = result["cost"]
    line = (
        f"A batch takes {found['us_per_record']:.2f} us for each record, {found['ms_per_lane']:.1f} ms for each lane, "
        f"and {found['ms_per_batch']:.0f} ms besides (fitted to {found['batches']} batches; off by "
        f"{found['median_off']:.0%} in the median, {found['worst_off']:.0%} at worst; R2 {found['r_squared']:.3f})."
    )
    parts = [
        table((Column("lanes", "lanes", number(0)), Column("batch", "batches of", number(0)), *rate), result["lanes"]),
        table((Column("producers", "producers", number(0)), *rate), result["producers"]),
        table((Column("records", "records", number(0)), *rate, *memory), result["records"]),
        line,
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    alone(__doc__, {"long": 0, "rounds": 1}, measure, show)
