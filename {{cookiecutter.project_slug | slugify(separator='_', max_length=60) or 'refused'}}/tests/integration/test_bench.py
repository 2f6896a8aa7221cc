"""The benchmarks on a real broker: a small run tells plausible figures, and an output that is not exact fails it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.machine import BROKER, PARTS
from bench.stage import Stage
from bench.throughput import measure, show
from bench.workload import VALUE, Workload, count, exact, fill
from confluent_kafka import Producer
from tests.support.kafka import QUIET, create_topic, fresh

from pipeline.errors import PipelineError
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.local.broker import Broker

RECORDS = 5_000
PARTITIONS = 2


def test_a_small_run_relays_all_and_tells_what_it_cost(broker: Broker, tmp_path: Path) -> None:
    stage = Stage(broker, tmp_path)
    batches = {"PIPELINE_SOURCE__MAX_OFFSETS_PER_TRIGGER": "2000"}
    result = measure(stage, RECORDS, PARTITIONS, 1, batches)
    (run,) = result["runs"]
    assert run["found"] == RECORDS - RECORDS // 50
    assert (run["lost"], run["duplicated"]) == (0, 0)
    assert 0 < run["first_output"] < run["whole"]
    assert run["steady"] > 0
    assert all(run[f"cpu_{part}"] > 0 for part in PARTS)
    assert (run[f"cpu_{BROKER}"] > 0) == bool(stage.broker_pid)
    assert run["peak_mb"] > 200
    assert [offset for _, offset in run["progress"]] == sorted({offset for _, offset in run["progress"]})
    assert f"{run['steady']:,.0f}" in show(result)


def test_an_output_that_lacks_a_record_or_has_one_twice_fails_the_benchmark(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, fresh("bench"), PARTITIONS)
    load = Workload(PARTITIONS)
    while load.distinct < 4:
        load.make()
    client = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number in (0, 1, 1, 3):
        client.produce(topic, VALUE % (number, 1, b"acct-000001", 1), partition=number % PARTITIONS)
    assert client.flush(30) == 0
    assert count(broker.bootstrap, topic, PARTITIONS, load.distinct) == (4, 1, 1)
    with pytest.raises(PipelineError, match="1 records lost, 1 duplicated"):
        exact(broker.bootstrap, topic, load)


def test_a_topic_is_filled_with_exactly_what_the_workload_made(broker: Broker) -> None:
    topic = fresh("bench")
    load = Workload(PARTITIONS)
    fill(Topics(broker.bootstrap), topic, 1_000, load)
    assert count(broker.bootstrap, topic, PARTITIONS, load.distinct) == (1_000, 0, 1_000 - load.distinct)
