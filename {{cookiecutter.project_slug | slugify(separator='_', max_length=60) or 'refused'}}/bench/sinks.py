"""What runs in Spark's Python workers for the steps between Spark's own sink and a lane: each adds one thing.

Built of the pipeline's own pieces (its producer settings, its transaction, its rows and its ledger), and less safe than
a lane on purpose: only `bench.overhead` uses them.
"""

from __future__ import annotations

import os
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark import TaskContext

from pipeline.errors import PipelineError
from pipeline.kafka import producer_config, with_room
from pipeline.lanes.judge import judge
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.rows import chunks, lane_rows
from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.flow.ranges import Range
    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

SENT = "sent long"
SECONDS = 60.0
SERVE_EVERY = 10_000
# A worker serves many batches: what it keeps between them lies here, by app. So all that runs in it is found by name,
# in this module: a function that travels by its code would bring a table of its own with each batch.
PRODUCERS: dict[str, Producer] = {}
LEDGERS: dict[tuple[str, int], Ledger] = {}


def counted(count: int) -> Any:
    """What a task tells the driver."""
    return pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], names=["sent"])


def pairs(batch: Any, topic: str) -> Iterable[Sendable]:
    """Key and value of each row of a batch, to be sent to a topic."""
    keys, values = (column.to_numpy(zero_copy_only=False).tolist() for column in batch.columns)
    return zip(repeat(topic), keys, values, repeat(None))


def send(producer: Producer, rows: Iterable[Sendable]) -> int:
    """Enqueue the rows, and serve the queue now and then; how many they were."""
    count = 0
    for count, (topic, key, value, _) in enumerate(rows, start=1):
        with_room(producer, SECONDS, topic, value, key)
        if count % SERVE_EVERY == 0:
            producer.poll(0)
    return count


def flushed(producer: Producer) -> None:
    """Wait until all is delivered."""
    if producer.flush(SECONDS):
        msg = "not all records were delivered in time"
        raise PipelineError(msg)


def idempotent(settings: Settings, batches: Iterator[Any]) -> Iterator[Any]:
    """Each worker keeps an idempotent producer; no transactions."""
    (out,) = settings.output.topics
    producer = PRODUCERS.get(settings.app.id)
    if producer is None:
        config = producer_config(settings, "") | {"enable.idempotence": True}
        for name in ("transactional.id", "transaction.timeout.ms"):
            del config[name]
        producer = PRODUCERS[settings.app.id] = Producer(config)
    count = sum(send(producer, pairs(batch, out)) for batch in batches)
    flushed(producer)
    yield counted(count)


def kept(settings: Settings, batches: Iterator[Any]) -> Iterator[Any]:
    """Each worker keeps a transactional producer; a transaction for each task."""
    (out,) = settings.output.topics
    producer = PRODUCERS.get(settings.app.id)
    if producer is None:
        producer = Producer(producer_config(settings, f"{settings.app.id}.worker.{os.getpid()}"))
        producer.init_transactions(SECONDS)
        PRODUCERS[settings.app.id] = producer
    taken = list(batches)
    producer.begin_transaction()
    count = sum(send(producer, pairs(batch, out)) for batch in taken)
    producer.commit_transaction(SECONDS)
    yield counted(count)


def fresh(settings: Settings, batches: Iterator[Any]) -> Iterator[Any]:
    """Each task makes its producer anew, and fences."""
    (out,) = settings.output.topics
    rows = [row for batch in batches for row in pairs(batch, out)]
    committed(settings, task_number(), rows)
    yield counted(len(rows))


def judged(settings: Settings, ranges: list[Range], batches: Iterator[Any]) -> Iterator[Any]:
    """The same, and the ledger judges each row; it is the worker's own, and gone with it."""
    limits = settings.transaction
    partition, first, until = ranges[task_number()]
    place = (settings.app.id, partition)
    ledger = LEDGERS.get(place)
    if ledger is None:
        ledger = LEDGERS[place] = Ledger(settings.dedup)
    rows = lane_rows(batches, partition, first, until, settings.identity)
    count = 0
    for chunk in chunks(rows, first, until, max_rows=limits.chunk_rows, max_seconds=limits.chunk_seconds):
        verdict = judge(chunk.parts, ledger, drop_stale=False)
        committed(settings, partition, verdict.outputs)
        count += len(verdict.outputs)
    yield counted(count)


def committed(settings: Settings, partition: int, rows: Iterable[Sendable]) -> None:
    """One transaction of a producer of its own, as a lane's, but without a lane record."""
    transaction = Transaction(producer_config(settings, settings.transactional_id(partition)))
    transaction.fence()
    transaction.begin()
    transaction.send_all(rows)
    transaction.commit()


def task_number() -> int:
    """Which task of its batch this is."""
    context = TaskContext.get()
    if context is None:
        msg = "a sink runs in Spark tasks only"
        raise PipelineError(msg)
    return int(context.partitionId())
