"""`python -m bench.overhead`: what each guarantee costs, in one table: from Spark's own sink to a lane with metrics.

    python -m bench.overhead --records 200000 --batch 40000 --rounds 3      about 90 s

Every step is a real run of the same records from the same topic, in batches of the same size, in one Spark; each adds
one thing to the one before it. The steps run in another order in each round, after three of them have run once,
unmeasured. Time is Spark's own of each whole trigger, without the first of a run. Ratios are of runs of the same round,
so a machine that is slower for a minute does not favour a step. Each output is read back: nothing may be lost.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import sinks
from bench.figures import in_turn, spread, to_other
from bench.inside import app, described, run, spark_kept, with_endpoint
from bench.machine import BROKER, PARTS, Sampler
from bench.peer import relay
from bench.stage import Stage, alone
from bench.tables import Column, number, table, with_spread
from bench.triggers import Triggers
from bench.workload import Workload, count, delete, fill
from pipeline.errors import PipelineError
from pipeline.flow.codec import codec_of
from pipeline.flow.ranges import ranges_of
from pipeline.flow.session import session
from pipeline.flow.source import records as with_source
from pipeline.flow.source import stream
from pipeline.flow.usercode import apply
from pipeline.kafka import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Settings

RECORDS = 200_000
BATCH = 40_000
ROUNDS = 3
PARTITIONS = 8
END_SECONDS = 300.0


@dataclass(frozen=True)
class Step:
    """A run with one thing more than the step before it; whether it drops repeats, as a lane for certain."""

    name: str
    run: Callable[[SparkSession, Settings], None]
    judges: bool = False
    lanes: bool = False
    metrics: bool = False


def native(spark: SparkSession, settings: Settings, *, idempotence: bool) -> None:
    """Spark's Kafka sink, with the batch size and compression of the pipeline."""
    (out,) = settings.output.topics
    options = {
        "kafka.bootstrap.servers": settings.output_bootstrap,
        "topic": out,
        "checkpointLocation": settings.spark.checkpoint,
        "kafka.enable.idempotence": str(idempotence).lower(),
        "kafka.compression.type": settings.output.compression,
        "kafka.linger.ms": "5",
        "kafka.batch.size": str(BATCH_BYTES),
    }
    writer = source(spark, settings).select("key", "value").writeStream.format("kafka").options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def source(spark: SparkSession, settings: Settings) -> DataFrame:
    """The topic from its beginning."""
    return stream(spark, settings, dict.fromkeys(range(PARTITIONS), 0))


def each_batch(spark: SparkSession, settings: Settings, write: Callable[[DataFrame], DataFrame]) -> None:
    """A function for each batch, which is run to its end."""
    frame = source(spark, settings)
    writer = frame.writeStream.foreachBatch(lambda batch, _: write(batch).collect() and None)
    writer = writer.option("checkpointLocation", settings.spark.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def in_python(spark: SparkSession, settings: Settings, sink: Callable[..., Any]) -> None:
    """Keys and values to a sink in Python workers."""
    each_batch(
        spark, settings, lambda batch: batch.select("key", "value").mapInArrow(partial(sink, settings), sinks.SENT)
    )


def deduplicated(spark: SparkSession, settings: Settings) -> None:
    """All that the lanes' rows need, to a sink that judges them."""
    codec = codec_of(settings)
    (out,) = settings.output.topics

    def write(batch: DataFrame) -> DataFrame:
        rows = apply(partial(relay, out), codec.decode(with_source(batch)), codec)
        return rows.mapInArrow(partial(sinks.judged, settings, ranges_of(batch)), sinks.SENT)

    each_batch(spark, settings, write)


def whole(_: SparkSession, settings: Settings) -> None:
    """The pipeline itself."""
    run(settings, metrics=bool(settings.metrics.port))


STEPS = (
    Step("Spark's own sink", partial(native, idempotence=False)),
    Step("+ idempotence", partial(native, idempotence=True)),
    Step("+ Python workers", partial(in_python, sink=sinks.idempotent)),
    Step("+ transactions", partial(in_python, sink=sinks.kept)),
    Step("+ fresh producer", partial(in_python, sink=sinks.fresh)),
    Step("+ dedup", deduplicated, judges=True),
    Step("+ lane record", whole, lanes=True),
    Step("+ metrics", whole, lanes=True, metrics=True),
)


def measure(stage: Stage, records: int = RECORDS, batch: int = BATCH, rounds: int = ROUNDS) -> dict[str, Any]:
    """All steps, in so many rounds; medians, spreads and ratios."""
    topic = stage.fresh("overhead")
    load = Workload(PARTITIONS)
    fill(stage.topics, topic, records, load, stage.say)
    done: dict[str, list[dict[str, float]]] = {step.name: [] for step in STEPS}
    with spark_kept():
        spark = session(described(stage, topic, PARTITIONS, batch))
        triggers = Triggers()
        spark.streams.addListener(triggers)
        for step in (STEPS[0], STEPS[2], STEPS[-1]):
            stepped(stage, spark, triggers, step, (topic, batch, load))
        stage.say("overhead: warmed up")
        for step in in_turn(STEPS, rounds):
            runs = done[step.name]
            runs.append(stepped(stage, spark, triggers, step, (topic, batch, load)))
            took = runs[-1]["us"]
            stage.say(f"overhead: round {len(runs)} of {rounds}: {step.name}: {took:.1f} us for a record")
        spark.streams.removeListener(triggers)
    delete(stage.topics, topic)
    return {"records": records, "batch": batch, "partitions": PARTITIONS, "steps": ratios(done)}


def stepped(
    stage: Stage, spark: SparkSession, triggers: Triggers, step: Step, work: tuple[str, int, Workload]
) -> dict[str, float]:
    """One run of one step."""
    topic, batch, load = work
    make = app if step.lanes else described
    settings = make(stage, topic, PARTITIONS, batch, **({"metrics": with_endpoint()} if step.metrics else {}))
    (out,) = settings.output.topics
    triggers.begin()
    with Sampler(os.getpid(), stage.broker_pid) as sampler:
        step.run(spark, settings)
    if not triggers.ended.wait(END_SECONDS) or len(triggers.milliseconds) < 2:  # noqa: PLR2004  the first is left out
        msg = f"overhead: {step.name}: {len(triggers.milliseconds)} batches: give it more records"
        raise PipelineError(msg)
    check(step, count(stage.bootstrap, out, PARTITIONS, load.distinct), load)
    delete(stage.topics, out, *([settings.lane_topic, settings.output.dead_letter_topic] if step.lanes else []))
    cpu = sampler.moments[-1].cpu_seconds
    timed = triggers.milliseconds[1:]
    return {
        "us": sum(timed) * 1000 / (load.made * len(timed) / len(triggers.milliseconds)),
        "cpu_us": sum(cpu.get(part, 0.0) for part in PARTS) * 1e6 / load.made,
        "broker_us": cpu.get(BROKER, 0.0) * 1e6 / load.made,
    }


def check(step: Step, counted: Any, load: Workload) -> None:
    """Nothing is lost; repeats are all there, or none, as the step has it."""
    repeats = load.made - load.distinct
    wrong = counted.duplicated > repeats if step.judges else counted.duplicated != (0 if step.lanes else repeats)
    if counted.lost or wrong:
        msg = f"overhead: {step.name}: {counted.lost} records lost, {counted.duplicated} duplicated"
        raise PipelineError(msg)


def ratios(done: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Figures of each step with their spread, and what it takes of the first one's time, and of the last one's."""
    names = list(done)
    rows = []
    for place, name in enumerate(names):
        runs = done[name]
        took, first, last = ([run["us"] for run in done[other]] for other in (name, names[0], names[max(place - 1, 0)]))
        rows.append(
            {
                "step": name,
                "runs": runs,
                **{figure: spread([run[figure] for run in runs]) for figure in runs[0]},
                "to_first": to_other(took, first),
                "to_last": to_other(took, last),
            }
        )
    return rows


def show(result: dict[str, Any]) -> str:
    """One table."""
    columns = (
        Column("step", "step", str),
        Column("us", "us for a record", with_spread(1)),
        Column("to_first", "time, of Spark's sink", with_spread(2)),
        Column("to_last", "of the step before", with_spread(2)),
        Column("cpu", "CPU us for a record", number(1)),
        Column("broker", "broker", number(1)),
    )
    rows = [{**row, "cpu": row["cpu_us"]["median"], "broker": row["broker_us"]["median"]} for row in result["steps"]]
    return table(columns, rows)


if __name__ == "__main__":
    alone(__doc__, {"records": RECORDS, "batch": BATCH, "rounds": ROUNDS}, measure, show)
