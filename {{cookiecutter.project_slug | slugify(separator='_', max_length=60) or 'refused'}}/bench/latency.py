"""`python -m bench.latency`: how long a record takes from its making to a reader.

    python -m bench.latency --rate 5000 --partitions 8 --seconds 60     about 100 s
    python -m bench.latency --seconds 3600                              an hour: does memory stay flat?
    PIPELINE_SPARK__MASTER='local[8,4]' python -m bench.latency         another setting, by environment

Records are sent at an even rate; each holds the time at which it was made. A read_committed reader takes the time at
which it has it in hand. What is sent while the pipeline starts and for some seconds more does not count; repeats of
an earlier record do not count. All that was sent must be read, once. The job's own metrics tell what a batch took, and
what part of it the lanes' transactions were, phase by phase.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bench.exchange import Exchange
from bench.figures import QUANTILES, quantile
from bench.machine import BROKER, PARTS, Sampler, flatness
from bench.stage import STALL_SECONDS, UNCHANGED, Stage, alone
from bench.tables import Column, number, table
from bench.workload import Workload, create, delete
from pipeline.errors import PipelineError
from pipeline.local.node import free_ports
from pipeline.observe import families
from pipeline.observe.scrape import quantile as bucket_quantile
from pipeline.observe.scrape import scrape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.observe.scrape import Buckets, Scrape

RATE = 5_000
PARTITIONS = 8
SECONDS = 60.0
# The Java process compiles what it runs often; figures settle within this time.
WARM_SECONDS = 15.0
# What came while it started has to be worked off first: so many seconds of records are a steady flow; if it is not
# there after so many times the warm-up, it is measured as it is, and told.
BEHIND_SECONDS = 2.0
PATIENCE = 3
SLOW_RATE = 50
NANO = 1_000_000_000


def measure(  # noqa: PLR0913, PLR0917  what is asked for
    stage: Stage,
    rate: int = RATE,
    partitions: int = PARTITIONS,
    seconds: float = SECONDS,
    warm: float = WARM_SECONDS,
    environ: Mapping[str, str] = UNCHANGED,
) -> dict[str, Any]:
    """Send for so many seconds beyond the warm-up; quantiles in milliseconds."""
    topic = stage.fresh("latency")
    create(stage.topics, topic, partitions)
    port = free_ports(1)[0].client
    environ = {"PIPELINE_METRICS__PORT": str(port), **environ}
    with (
        stage.relay(topic, partitions, **environ) as relay,
        Sampler(relay.process.pid, stage.broker_pid) as sampler,
        closing(Exchange(stage, topic, relay, Workload(partitions, seed=11))) as exchange,
    ):
        result = measured(stage, exchange, sampler, f"http://127.0.0.1:{port}", rate, seconds, warm)
    delete(stage.topics, topic, *relay.topics)
    return result


def measured(  # noqa: PLR0913, PLR0917  the stage, and what is asked for
    stage: Stage, exchange: Exchange, sampler: Sampler, endpoint: str, rate: int, seconds: float, warm: float
) -> dict[str, Any]:
    """Wait for the first output, warm up, measure, and count."""
    ready = exchange.relay.started + STALL_SECONDS

    def answered() -> bool:
        exchange.relay.check(ready)
        return bool(exchange.read)

    exchange.pace(SLOW_RATE, answered)
    stage.say(f"latency: first output after {time.monotonic() - exchange.relay.started:.1f} s; warm up for {warm:g} s")
    start = time.monotonic() + warm

    def warmed() -> bool:
        left = start - time.monotonic()
        return left <= 0 and (exchange.waiting < rate * BEHIND_SECONDS or left < -PATIENCE * warm)

    exchange.pace(rate, warmed)
    waiting = exchange.waiting
    before, first, since = scrape(endpoint), sampler.until(time.monotonic()), time.time_ns()
    own = time.process_time()
    stage.say(f"latency: {rate:,} records/s for {seconds:g} s")
    exchange.pace(rate, lambda: time.time_ns() >= since + int(seconds * NANO))
    after, last, until = scrape(endpoint), sampler.until(time.monotonic()), time.time_ns()
    own = time.process_time() - own
    exchange.finish()
    # Sorted once: each quantile sorts what it is given, and an hour has millions.
    lasted = sorted((read - made) / 1e6 for made, read in exchange.read.values() if since <= made < until)
    if exchange.duplicated:
        msg = f"latency: {exchange.duplicated} records were read twice"
        raise PipelineError(msg)
    taken = (until - since) / NANO
    return {
        "rate": rate,
        "partitions": exchange.load.partitions,
        "seconds": taken,
        "records": len(lasted),
        "keeps_up": waiting < rate * BEHIND_SECONDS,
        **{name: quantile(lasted, share) for name, share in QUANTILES.items()},
        "max": max(lasted),
        "cores": {
            part: (last.cpu_seconds.get(part, 0.0) - first.cpu_seconds.get(part, 0.0)) / taken
            for part in (*PARTS, BROKER)
        },
        "bench_cores": own / taken,
        "other_cores": (last.other_seconds - first.other_seconds) / taken,
        "peak_mb": sampler.peak(*PARTS) / 1e6,
        "memory": flatness([moment for moment in sampler.moments if first.at <= moment.at <= last.at]),
        "curve": [quantile(lasted, share / 100) for share in range(1, 101)],
        **own_figures(before, after, taken),
    }


def own_figures(before: Scrape, after: Scrape, seconds: float) -> dict[str, Any]:
    """What the job says of itself: the batches and transactions of the time between two scrapes."""

    def between(family: families.Family, end: str, **wanted: str) -> float:
        name = f"{family.name}{end}"
        return after.total(name, **wanted) - before.total(name, **wanted)

    batches = between(families.BATCH_SECONDS, "_count")
    transactions = between(families.TRANSACTION_SECONDS, "_count")
    if not batches or not transactions:
        msg = "latency: no batch ended while it was measured: measure for longer"
        raise PipelineError(msg)
    in_batches = between(families.BATCH_SECONDS, "_sum")
    buckets = grown(before.buckets(families.BATCH_SECONDS.name), after.buckets(families.BATCH_SECONDS.name))
    return {
        "batches": int(batches),
        "records_per_batch": between(families.READ, "") / batches,
        "cycle_ms": seconds / batches * 1000,
        "batch_ms": in_batches / batches * 1000,
        "batch_p95_ms": 1000 * (bucket_quantile(0.95, buckets) or 0.0),
        "transactions_per_batch": transactions / batches,
        "transaction_ms": between(families.TRANSACTION_SECONDS, "_sum") / transactions * 1000,
        "phases_ms": {
            phase: between(families.PHASE_SECONDS, "_sum", phase=phase) / transactions * 1000
            for phase in families.PHASES
        },
    }


def grown(before: Buckets, after: Buckets) -> Buckets:
    """A histogram of what came between the two."""
    return {bound: reached - before.get(bound, 0.0) for bound, reached in after.items()}


def show(result: dict[str, Any]) -> str:
    """What a reader sees, where the time goes, and whether memory grows."""
    milliseconds = number(0)
    first = table(
        (
            Column("records", "records", milliseconds),
            *(Column(name, f"{name}, ms", milliseconds) for name in (*QUANTILES, "max")),
            Column("busy", "cores: job, broker, bench, other", str),
            Column("peak_mb", "peak MB", milliseconds),
        ),
        [{**result, "busy": cores(result)}],
    )
    rows = [
        ("from batch to batch", result["cycle_ms"]),
        ("a batch: plan, tasks, report", result["batch_ms"]),
        ("a lane's transaction in it", result["transaction_ms"]),
        *((f"- {phase}", spent) for phase, spent in result["phases_ms"].items()),
    ]
    second = table(
        (Column("what", f"of {result['batches']} batches", str), Column("ms", "mean, ms", number(1))),
        [{"what": what, "ms": spent} for what, spent in rows],
    )
    memory = result["memory"]
    third = (
        f"Memory of Java process and workers: {memory['early_mb']:,.0f} MB in the second quarter of the time, "
        f"{memory['late_mb']:,.0f} MB in the last; {memory['rise_mb_per_minute']:+.1f} MB a minute in the second half."
    )
    behind = "" if result["keeps_up"] else "\n\nIt did not keep up with the sender: these figures grow with the time."
    return f"{first}\n\n{second}\n\n{third}{behind}"


def cores(result: dict[str, Any]) -> str:
    """Cores that were busy on average."""
    job = sum(result["cores"][part] for part in PARTS)
    rest = f"{result['bench_cores']:.2f}, {max(result['other_cores'], 0.0):.2f}"
    return f"{job:.2f}, {result['cores'][BROKER]:.2f}, {rest}"


if __name__ == "__main__":
    options = {"rate": RATE, "partitions": PARTITIONS, "seconds": SECONDS, "warm": WARM_SECONDS}
    alone(__doc__, options, measure, show)
