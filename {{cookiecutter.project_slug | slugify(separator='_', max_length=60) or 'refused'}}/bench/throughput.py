"""`python -m bench.throughput`: how many records in a second, and what they cost.

    python -m bench.throughput --records 2000000 --partitions 8 --runs 3        about 40 s for each run
    PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER=200000 python -m bench.throughput  another setting, by environment

A topic is filled once. In each run a new pipeline, in a process of its own, relays it from its beginning to the end.
*Steady* is from the first committed output that was seen to the last, by last stable offsets; *whole* is from the
start of the process to the last output. CPU seconds are from start to last output. Every run's output is read back:
a record that is lost or there twice fails the benchmark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from bench.figures import Point, spread, steady_rate
from bench.machine import BROKER, PARTS, Sampler
from bench.stage import STALL_SECONDS, UNCHANGED, Relay, Stage, alone
from bench.tables import Column, number, table
from bench.workload import Workload, delete, exact, fill, stable_end
from pipeline.kafka import REQUEST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS = 2_000_000
PARTITIONS = 8
RUNS = 3
LOOK_SECONDS = 0.05


def measure(
    stage: Stage,
    records: int = RECORDS,
    partitions: int = PARTITIONS,
    runs: int = RUNS,
    environ: Mapping[str, str] = UNCHANGED,
) -> dict[str, Any]:
    """Fill a topic and relay it so many times; the result has each run, and medians with their spread."""
    topic = stage.fresh("throughput")
    load = Workload(partitions)
    fill(stage.topics, topic, records, load, stage.say)
    done = []
    for run in range(1, runs + 1):
        done.append(relayed(stage, topic, load, environ))
        stage.say(f"throughput {run} of {runs}: {done[-1]['steady']:,.0f} records/s, {done[-1]['cpu_total']:.1f} CPU s")
    delete(stage.topics, topic)
    names = [name for name, value in done[0].items() if isinstance(value, (int, float))]
    return {
        "records": records,
        "partitions": partitions,
        "runs": done,
        **{name: spread([run[name] for run in done]) for name in names},
    }


def relayed(stage: Stage, topic: str, load: Workload, environ: Mapping[str, str]) -> dict[str, Any]:
    """One run from an empty output to the end of the log."""
    with stage.relay(topic, load.partitions, **environ) as relay:
        with Sampler(relay.process.pid, stage.broker_pid) as sampler:
            seen = follow(stage, relay, load)
        ended = time.monotonic()
    stopped = time.monotonic() - ended
    counted = exact(stage.bootstrap, relay.out, load)
    delete(stage.topics, *relay.topics)
    first, last = seen[0], seen[-1]
    moment = sampler.until(last.at)
    cpu = {part: moment.cpu_seconds.get(part, 0.0) for part in (*PARTS, BROKER)}
    return {
        "steady": steady_rate(seen, load.made / load.distinct) or load.made / (last.at - relay.started),
        "whole": last.at - relay.started,
        "first_output": first.at - relay.started,
        **{f"cpu_{part}": seconds for part, seconds in cpu.items()},
        "cpu_total": sum(cpu[part] for part in PARTS),
        "cpu_other": moment.other_seconds,
        "peak_mb": sampler.peak(*PARTS) / 1e6,
        "stop": stopped,
        "found": counted.found,
        "lost": counted.lost,
        "duplicated": counted.duplicated,
        "progress": [(round(point.at - relay.started, 2), point.offset) for point in seen],
    }


def follow(stage: Stage, relay: Relay, load: Workload) -> list[Point]:
    """What was seen of the output while it grew, until the pipeline has told its consumer group that all is done."""
    seen: list[Point] = []
    moved = time.monotonic()
    done = False
    while not done:
        # In this order: what is there when the group says so is all.
        done = bool(seen) and seen[-1].offset >= load.distinct and settled(stage, relay, load.partitions) == load.made
        end = stable_end(stage.topics, relay.out, load.partitions)
        if end > (seen[-1].offset if seen else 0):
            moved = time.monotonic()
            seen.append(Point(moved, end))
        relay.check(moved + STALL_SECONDS)
        time.sleep(LOOK_SECONDS)
    return seen


def settled(stage: Stage, relay: Relay, partitions: int) -> int:
    """How many source offsets the pipeline says to have settled, as lag tools see it."""
    asked = [TopicPartition(relay.source, partition) for partition in range(partitions)]
    request = ConsumerGroupTopicPartitions(relay.settings.group, asked)
    answer = stage.topics.admin.list_consumer_group_offsets([request])[relay.settings.group].result(REQUEST_SECONDS)
    return sum(max(place.offset, 0) for place in answer.topic_partitions)


COLUMNS = (
    Column("steady", "steady, records/s", number(0)),
    Column("whole", "whole, s", number(1)),
    Column("first_output", "first output after, s", number(1)),
    Column("cpu_total", "CPU s", number(1)),
    Column("cpu_driver", "driver", number(1)),
    Column("cpu_jvm", "Java", number(1)),
    Column("cpu_workers", "workers", number(1)),
    Column("cpu_broker", "broker CPU s", number(1)),
    Column("cpu_other", "other CPU s", number(1)),
    Column("peak_mb", "peak MB", number(0)),
    Column("lost", "lost", number(0)),
    Column("duplicated", "duplicated", number(0)),
)


def show(result: dict[str, Any]) -> str:
    """The figures of each run, and their medians."""
    rows = [{"run": str(run), **figures} for run, figures in enumerate(result["runs"], start=1)]
    medians = {column.name: result[column.name]["median"] for column in COLUMNS}
    return table((Column("run", "run", str), *COLUMNS), [*rows, {"run": "median", **medians}])


if __name__ == "__main__":
    alone(__doc__, {"records": RECORDS, "partitions": PARTITIONS, "runs": RUNS}, measure, show)
