"""`python -m bench.tuning`: what the settings do that are worth turning, each against the settings as shipped.

    python -m bench.tuning                              about 12 minutes
    python -m bench.tuning --only latency --rounds 3    one goal of throughput, latency, lanes

For each goal the shipped settings and every other choice run in turn, in another order in each round. Throughput and
many lanes are steady rates of whole pipelines; latency is as in `bench.latency`, for a shorter time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import latency, throughput
from bench.figures import in_turn, spread
from bench.stage import Stage, alone
from bench.tables import Column, table, with_spread
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

SHIPPED: dict[str, str] = {}


@dataclass(frozen=True)
class Goal:
    """What is wanted, how it is measured, and the choices: by environment, as for any run."""

    name: str
    measure: Callable[[Stage, dict[str, str]], dict[str, float]]
    choices: tuple[dict[str, str], ...]


def rate(stage: Stage, environ: dict[str, str], *, partitions: int, records: int) -> dict[str, float]:
    """Steady rate and CPU seconds of one run."""
    (run,) = throughput.measure(stage, records, partitions, 1, environ)["runs"]
    return {"records/s": run["steady"], "CPU s": run["cpu_total"], "peak MB": run["peak_mb"]}


def times(stage: Stage, environ: dict[str, str]) -> dict[str, float]:
    """Quantiles of one run."""
    found = latency.measure(stage, seconds=12.0, warm=8.0, environ=environ)
    return {"p50, ms": found["p50"], "p99, ms": found["p99"], "from batch to batch, ms": found["cycle_ms"]}


BATCH, MASTER = "PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER", "PIPELINE_SPARK__MASTER"
CHUNK, COMPRESSION = "PIPELINE_TRANSACTION__CHUNK_ROWS", "PIPELINE_OUTPUT__COMPRESSION"
GOALS = (
    Goal(
        "throughput",
        lambda stage, environ: rate(stage, environ, partitions=8, records=600_000),
        (SHIPPED, {BATCH: "50000"}, {BATCH: "600000"}, {MASTER: "local[2,4]"}, {CHUNK: "5000"}, {COMPRESSION: "none"}),
    ),
    Goal("latency", times, (SHIPPED, {MASTER: "local[2,4]"}, {MASTER: "local[8,4]"}, {COMPRESSION: "none"})),
    Goal(
        "lanes",
        lambda stage, environ: rate(stage, environ, partitions=64, records=300_000),
        (SHIPPED, {MASTER: "local[8,4]"}, {MASTER: "local[16,4]"}, {BATCH: "50000"}),
    ),
)


def measure(stage: Stage, only: str = "", rounds: int = 2) -> dict[str, Any]:
    """Every choice of every goal, so many times."""
    if only and only not in {goal.name for goal in GOALS}:
        msg = f"no such goal: {only}; there are {', '.join(goal.name for goal in GOALS)}"
        raise PipelineError(msg)
    found: dict[str, Any] = {}
    for goal in GOALS:
        if only and goal.name != only:
            continue
        runs: dict[str, list[dict[str, float]]] = {named(choice): [] for choice in goal.choices}
        for choice in in_turn(goal.choices, rounds):
            runs[named(choice)].append(goal.measure(stage, choice))
            stage.say(f"tuning for {goal.name}: {named(choice)}: {runs[named(choice)][-1]}")
        found[goal.name] = [
            {"choice": choice, **{name: spread([run[name] for run in done]) for name in done[0]}}
            for choice, done in runs.items()
        ]
    return {"goals": found, "rounds": rounds}


def named(choice: dict[str, str]) -> str:
    """A choice as it stands in `pipeline.toml`."""
    if not choice:
        return "as shipped"
    ((name, value),) = choice.items()
    section, key = name.removeprefix("PIPELINE_").lower().split("__")
    return f"{section}.{key} = {value}"


def show(result: dict[str, Any]) -> str:
    """A table for each goal."""
    tables = []
    for goal, rows in result["goals"].items():
        figures = [name for name in rows[0] if name != "choice"]
        columns = [Column("choice", f"for {goal}", str), *(Column(name, name, with_spread(0)) for name in figures)]
        tables.append(table(columns, rows))
    return "\n\n".join(tables)


if __name__ == "__main__":
    alone(__doc__, {"only": "", "rounds": 2}, measure, show)
