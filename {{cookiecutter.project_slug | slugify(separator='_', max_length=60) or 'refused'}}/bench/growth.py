"""`python -m bench.growth`: what more lanes, more producers and more records do to speed and memory.

    python -m bench.growth                      about 80 s: up to 64 lanes, 20,000 producers, 300,000 records
    python -m bench.growth --long 1             about an hour: 100,000 producers, 20,000,000 records, batches as shipped

Each series changes one thing and keeps the rest the same. The time from the end of a batch to the end of the next is
fitted as a * records + b * lanes + c, by least squares over batches of several sizes and numbers of lanes; how far it
is off is told. Memory is of the longest run: Java process and Python workers, at every fifth of a second. Jobs run one
after the other in one Spark, and each output is read back: lost and duplicated must be 0.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.figures import fit
from bench.inside import Lap, app, run, spark_kept
from bench.machine import Sampler, flatness
from bench.peer import sections
from bench.stage import Stage, alone
from bench.tables import Column, number, table
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


def measure(stage: Stage, long: int = 0) -> dict[str, Any]:
    """All series, and the fit."""
    scale = LONG if long else QUICK
    with spark_kept():
        relayed(stage, Workload(PARTITIONS), 3 * scale.batches[1], scale.batches[1])  # the Java process warms up
        lanes, laps = by_lanes(stage, scale)
        producers = by_producers(stage, scale)
        records, memory = by_records(stage, scale)
    return {"lanes": lanes, "producers": producers, "records": records, "memory": memory, "cost": cost(laps)}


def by_lanes(stage: Stage, scale: Scale) -> tuple[list[dict[str, Any]], list[Lap]]:
    """More and more lanes, in batches of each size."""
    rows, laps = [], []
    for lanes in scale.lanes:
        for size in scale.batches:
            batch, count = (size, scale.laps) if size else (shipped(stage, lanes), SHIPPED_LAPS)
            done = relayed(stage, Workload(lanes), (count + 1) * batch, size)
            laps += done.laps
            rows.append({"lanes": lanes, "batch": batch, "rate": done.rate, "batch_ms": median_ms(done.laps)})
            stage.say(f"growth: {lanes} lanes, batches of {batch:,}: {done.rate:,.0f} records/s")
    return rows, laps


def shipped(stage: Stage, lanes: int) -> int:
    """How large a batch of so many lanes is, as shipped."""
    given = {"BOOTSTRAP": stage.bootstrap, "IN_TOPIC": "in", "OUT_TOPIC": "out"}
    return build(sections(given)).most_offsets(lanes)


def by_producers(stage: Stage, scale: Scale) -> list[dict[str, Any]]:
    """The same records from more and more producers, each on one lane; the second half, when the ledgers know all."""
    rows = []
    for producers in scale.producers:
        load = Workload(PARTITIONS, producers=producers, apart=True)
        done = relayed(stage, load, scale.producer_records, scale.producer_batch)
        done.laps = done.laps[len(done.laps) // 2 :]
        rows.append({"producers": producers, "rate": done.rate, "batch_ms": median_ms(done.laps)})
        stage.say(f"growth: {producers:,} producers: {done.rate:,.0f} records/s")
    return rows


def by_records(stage: Stage, scale: Scale) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Longer and longer logs, and the memory of the longest run."""
    rows, memory = [], {}
    for records in scale.records:
        with Sampler(os.getpid(), stage.broker_pid) as sampler:
            done = relayed(stage, Workload(PARTITIONS), records, scale.record_batch)
        memory = flatness(sampler.moments)
        rows.append({"records": records, "rate": done.rate, "batch_ms": median_ms(done.laps), **memory})
        stage.say(f"growth: {records:,} records: {done.rate:,.0f} records/s")
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
    rate = (Column("rate", "records/s", number(0)), Column("batch_ms", "batch, ms", number(0)))
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
    alone(__doc__, {"long": 0}, measure, show)
