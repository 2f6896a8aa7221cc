"""The arithmetic of the benchmarks, against figures worked out by hand; what /proc says, against this very process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

import pytest
from bench.figures import Point, fit, in_turn, quantile, slope, spread, steady_rate, to_other
from bench.machine import (
    BROKER,
    DRIVER,
    JVM,
    TICK,
    WORKERS,
    Moment,
    Sampler,
    descendants,
    flatness,
    parse_busy,
    parse_stat,
    part_of,
    processes,
)
from bench.workload import REPEAT_EVERY, Made, Workload, id_of, time_of
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kafka import wait_until

from pipeline.observe.audit.placement import POSITIVE, key_hash

VALUES = st.lists(st.floats(0, 1e9), min_size=1, max_size=50)


def test_a_quantile_is_a_value_that_was_seen() -> None:
    values = list(range(100, 0, -1))
    assert [quantile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1, 50, 95, 99, 100]
    assert quantile([7.0], 0.99) == 7.0


@given(VALUES, st.floats(0.01, 1))
def test_a_quantile_has_its_share_of_the_values_at_or_below_it(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) < share * len(values) + 1e-9


def test_choices_run_in_turn_each_once_a_round_in_another_order_and_in_the_same_orders_again() -> None:
    turns = list(in_turn("abcde", 3))
    rounds = [turns[:5], turns[5:10], turns[10:]]
    assert [sorted(one) for one in rounds] == [list("abcde")] * 3
    assert len({"".join(one) for one in rounds}) == 3
    assert list(in_turn("abcde", 3)) == turns


def test_ratios_are_of_runs_of_the_same_round() -> None:
    assert to_other([1.0, 6.0, 9.0], [1.0, 2.0, 9.0]) == {"median": 1.0, "low": 1.0, "high": 3.0, "runs": 3}


def test_a_spread_tells_median_ends_and_number_of_runs() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0, "runs": 3}


def test_a_steady_rate_is_from_the_first_output_to_the_last() -> None:
    seen = [Point(10.0, 1_000), Point(11.0, 5_000), Point(14.0, 9_000)]
    assert steady_rate(seen) == 2_000
    assert steady_rate(seen, 1.5) == 3_000
    assert steady_rate(seen[:1]) is None


@given(st.floats(0.001, 1), st.floats(0.1, 50), st.floats(1, 500))
def test_a_fit_finds_the_factors_that_made_the_values(per_record: float, per_lane: float, constant: float) -> None:
    rows = [(records, lanes, 1.0) for records in (100, 2_000, 50_000) for lanes in (1, 8, 64)]
    values = [per_record * records + per_lane * lanes + constant for records, lanes, _ in rows]
    found = fit(rows, values)
    assert found.factors == pytest.approx((per_record, per_lane, constant), rel=1e-4)
    assert found.worst < 1e-3 * max(values)
    assert found.r_squared == pytest.approx(1.0)


def test_residuals_are_what_the_fit_leaves_over() -> None:
    rows, values = [(1.0,), (1.0,)], [1.0, 3.0]
    found = fit(rows, values)
    (factor,) = found.factors
    assert found.residuals == pytest.approx((1.0 - factor, 3.0 - factor))
    assert found.worst == pytest.approx(max(abs(1.0 - factor), abs(3.0 - factor)))
    assert found.r_squared < 0.5


def test_a_slope_is_the_rise_in_a_second() -> None:
    assert slope([(5.0, 10.0), (6.0, 12.0), (8.0, 16.0)]) == pytest.approx(2.0)


def test_a_process_is_read_whatever_its_name_holds() -> None:
    fields = " ".join(["S", "17", *["0"] * 9, "250", "150", *["0"] * 8, "4096", "0"])
    found = parse_stat(f"42 (a) b (c)) {fields}".encode())
    assert found.parent == 17
    assert found.cpu_seconds == 400 / TICK
    assert found.bytes == 4096 * os.sysconf("SC_PAGE_SIZE")


def test_a_core_that_is_idle_or_waits_for_a_disk_is_not_busy() -> None:
    assert parse_busy("cpu  100 20 30 9999 8888 4 5 6 7 8\ncpu0 1 2 3\n") == 165 / TICK


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (b"/usr/lib/jvm/bin/java\0-cp\0jars\0org.apache.spark.deploy.SparkSubmit", JVM),
        (b"/venv/bin/python\0-m\0pyspark.daemon\0pyspark.worker", WORKERS),
        (b"/venv/bin/python\0-m\0pipeline.flow.daemon\0pyspark.worker", WORKERS),
        (b"/venv/bin/python\0-m\0bench.peer", DRIVER),
    ],
)
def test_a_process_belongs_to_the_part_that_its_command_names(command: bytes, part: str) -> None:
    assert part_of(command) == part


def test_memory_that_grows_is_told_by_its_quarters_and_its_rise() -> None:
    moments = [Moment(100.0 + at, {}, {JVM: int(1e9), WORKERS: at * 1_000_000, BROKER: 7}, 0.0) for at in range(40)]
    found = flatness(moments)
    assert found["early_mb"] == 1_014.5
    assert found["late_mb"] == 1_034.5
    assert found["rise_mb_per_minute"] == pytest.approx(60.0)
    assert found["points"][0] == (0.0, 1_000.0)


def test_a_child_is_found_and_what_it_costs_is_counted_until_after_its_end() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with Sampler(os.getpid()) as sampler:
        child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline()
        assert child.pid in descendants(os.getpid(), processes())
        seen = len(sampler.moments)
        wait_until(lambda: len(sampler.moments) > seen + 1)
        child.communicate(b"\n")
    assert child.pid not in processes()
    assert sampler.moments[0].cpu_seconds[DRIVER] < 0.29  # what came before it is not counted
    assert sampler.moments[-1].cpu_seconds[DRIVER] >= 0.29
    assert sampler.peak(DRIVER) > 1_000_000
    assert sampler.until(time.monotonic()) is sampler.moments[-1]


def test_a_workload_is_the_same_each_time_and_its_repeats_are_true() -> None:
    loads = Workload(8), Workload(8)
    records = [[load.make() for _ in range(5_000)] for load in loads]
    assert [(made.partition, made.key, made.id, made.headers) for made in records[0]] == [
        (made.partition, made.key, made.id, made.headers) for made in records[1]
    ]
    first: dict[int, Made] = {}
    repeats = 0
    for made in records[0]:
        original = first.setdefault(made.id, made)
        repeats += original is not made
        assert made == original
        assert made.partition == (key_hash(made.key) & POSITIVE) % 8
        assert id_of(made.value) == made.id
        assert abs(time.time_ns() - time_of(made.value)) < 60e9
    assert repeats == 5_000 // REPEAT_EVERY == loads[0].made - loads[0].distinct
    assert 180 <= median(len(made.value) for made in records[0]) <= 220


def test_producers_apart_send_to_one_partition_each_with_rising_numbers() -> None:
    load = Workload(4, producers=40, apart=True)
    places: dict[bytes, int] = {}
    newest: dict[bytes, int] = {}
    for made in (load.make() for _ in range(4_000)):
        name, txn = made.headers[0][1], int(made.headers[1][1])
        assert places.setdefault(name, made.partition) == made.partition
        assert txn > newest.get(name, -1) or txn == made.id
        newest[name] = max(txn, newest.get(name, -1))
    assert len(places) == 40
