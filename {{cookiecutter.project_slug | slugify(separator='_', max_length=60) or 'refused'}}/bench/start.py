"""`python -m bench.start`: how long until the first committed record, and until the next one after a SIGKILL.

    python -m bench.start --records 400000 --partitions 8 --runs 3      about 60 s for each run

*Start* is from the start of the process to the first record that a read_committed reader has in hand. Then the whole
pipeline is killed, Java process and Python workers too, and started again at once, as by a supervisor. *Recovery* is
from the kill to the next record that the reader has in hand: what the killed one left open must be aborted first. The
second pipeline goes on to the end; a record that is lost or there twice fails the benchmark.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from bench.figures import spread
from bench.stage import STALL_SECONDS, Relay, Stage, alone
from bench.tables import Column, number, table
from bench.throughput import follow
from bench.workload import Workload, create, delete, exact, fill, is_record
from pipeline.errors import PipelineError
from pipeline.kafka import consumer_config

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS = 400_000
PARTITIONS = 8
RUNS = 3
# Small batches: the kill must come before the log is done.
BATCH = "20000"
LOOK_SECONDS = 0.01
READ_AT_ONCE = 10_000


def measure(stage: Stage, records: int = RECORDS, partitions: int = PARTITIONS, runs: int = RUNS) -> dict[str, Any]:
    """Start, kill and start again, so many times."""
    topic = stage.fresh("start")
    load = Workload(partitions)
    fill(stage.topics, topic, records, load, stage.say)
    done = []
    for run in range(1, runs + 1):
        done.append(started(stage, topic, load, {"PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER": BATCH}))
        stage.say(f"start {run} of {runs}: {done[-1]['start']:.1f} s, recovery {done[-1]['recovery']:.1f} s")
    delete(stage.topics, topic)
    return {
        "records": records,
        "partitions": partitions,
        "runs": done,
        **{name: spread([run[name] for run in done]) for name in done[0]},
    }


def started(stage: Stage, topic: str, load: Workload, environ: dict[str, str]) -> dict[str, Any]:
    """One start, one kill, one recovery."""
    out = stage.fresh(f"{topic}-out")
    create(stage.topics, out, load.partitions)
    reader = Consumer({**consumer_config(stage.bootstrap), "fetch.wait.max.ms": 100})
    reader.assign([TopicPartition(out, place, 0) for place in range(load.partitions)])
    with closing(reader):
        with stage.relay(topic, load.partitions, out, **environ) as relay:
            start = first_record(reader, relay, {}) - relay.started
            relay.kill()
            killed = time.monotonic()
        # With what stands in open transactions: it is never read, and all that comes later stands behind it.
        ends = stage.topics.offsets(out, range(load.partitions), OffsetSpec.latest(), committed=False)
        if sum(ends.values()) >= load.distinct:
            msg = "start: the log was done before the kill: give it more records"
            raise PipelineError(msg)
        with stage.relay(topic, load.partitions, out, **environ) as relay:
            recovery = first_record(reader, relay, ends) - killed
            follow(stage, relay, load)
    exact(stage.bootstrap, out, load)
    delete(stage.topics, *relay.topics)
    return {"start": start, "recovery": recovery}


def first_record(reader: Consumer, relay: Relay, ends: Mapping[int, int]) -> float:
    """When the reader had a record in hand that stands beyond what a killed pipeline has written."""
    deadline = time.monotonic() + STALL_SECONDS
    while True:
        for message in reader.consume(READ_AT_ONCE, LOOK_SECONDS):
            if is_record(message) and message.offset() >= ends.get(message.partition(), 0):
                return time.monotonic()
        relay.check(deadline)


def show(result: dict[str, Any]) -> str:
    """Each run, and the medians."""
    columns = (
        Column("run", "run", str),
        Column("start", "start to first record, s", number(1)),
        Column("recovery", "SIGKILL to next record, s", number(1)),
    )
    rows = [{"run": str(run), **figures} for run, figures in enumerate(result["runs"], start=1)]
    medians = {name: result[name]["median"] for name in ("start", "recovery")}
    return table(columns, [*rows, {"run": "median", **medians}])


if __name__ == "__main__":
    alone(__doc__, {"records": RECORDS, "partitions": PARTITIONS, "runs": RUNS}, measure, show)
