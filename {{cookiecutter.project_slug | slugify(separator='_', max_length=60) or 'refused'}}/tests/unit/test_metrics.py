"""Metrics: set from lane records, never lowered, all known labels from the start, and all of them documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.figures import TOPIC, batch, lane, report, settings_of
from tests.support.rows import Row, columnar

from pipeline.errors import SafeStop
from pipeline.lanes.cost import cost
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.report import BUCKETS, Commit, LaneReport
from pipeline.lanes.token import Token
from pipeline.observe import families
from pipeline.observe.collectors import STALE_SECONDS
from pipeline.observe.families import FAMILIES, KNOWN_VALUES, markdown
from pipeline.observe.lag import NOTHING_UNREAD, Polled
from pipeline.observe.metrics import Metrics
from pipeline.observe.progress import Batch, Observer
from pipeline.sections import Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.lanes.record import LaneRecord

# `make setup` puts it beside Python.
PROMTOOL = shutil.which("promtool", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
NOW_MS = 1_700_000_000_000


class Exposed:
    """A registry with the pipeline's metrics in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics.build(settings_of(), self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"topic": TOPIC, **labels})

    def lane(self, name: str, partition: int = 0, **labels: str) -> float | None:
        return self.value(name, partition=str(partition), **labels)

    def poll(self, stable: Mapping[int, int], oldest: Mapping[int, float] | None = None, age: float = 0.0) -> None:
        self.metrics.lag.polled = Polled(time.time() - age, stable, {(TOPIC, 0): 3, ("receipts", 1): 0}, oldest or {})


@pytest.fixture
def exposed() -> Exposed:
    """Return fresh metrics."""
    return Exposed()


def commit_of(*timestamps: int) -> Commit:
    """Return the commit of rows with these timestamps, made at NOW_MS."""
    rows: list[Row] = [(at, stamp, None, None, None, None, False, 0, None, []) for at, stamp in enumerate(timestamps)]
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr("pipeline.lanes.report.time", SimpleNamespace(time_ns=lambda: NOW_MS * 1_000_000))
        return Commit(seconds={"fence": 0.5, "commit": 0.25}).describe([columnar(rows)], written=len(rows))


def test_what_is_exposed_is_what_the_table_says(exposed: Exposed) -> None:
    token = Token("query", 1, 1, b"", (4,))
    exposed.metrics.on_start(3, {0: lane()})
    exposed.metrics.on_batch(batch(report(replace(lane(next_offset=4), token=token), commit_of(NOW_MS))))
    exposed.poll({0: 5}, {0: time.time()})
    found = {}
    for family in exposed.registry.collect():
        kind = {"info": "gauge"}.get(family.type, family.type)
        name = {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(family.type, family.name)
        found[name] = (kind, {frozenset(sample.labels) - {"le"} for sample in family.samples})
    assert found == {family.name: (family.kind, {frozenset(family.labels)}) for family in FAMILIES}


def test_every_known_label_is_there_at_zero_before_anything_happens(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane()})
    for family in FAMILIES:
        extra = [label for label in family.labels if label in KNOWN_VALUES]
        for value in KNOWN_VALUES[extra[0]] if extra else ():
            name = family.name if family.kind == "counter" else f"{family.name}_count"
            labels = {"partition": "0"} if "partition" in family.labels else {}
            assert exposed.value(name, **labels, **{extra[0]: value}) == 0, (family.name, value)
    assert exposed.value("pipeline_records_skipped_total") == 0
    assert exposed.value("pipeline_end_to_end_latency_seconds_count") == 0


def test_there_are_no_series_of_creation_times(exposed: Exposed) -> None:
    exposed.metrics.on_batch(batch(report(lane(), commit_of(NOW_MS))))
    assert b"_created" not in generate_latest(exposed.registry)


def test_counters_go_on_from_the_lane_records_after_a_restart(exposed: Exposed) -> None:
    counters: dict[str, Any] = {
        "read": 10,
        "written": 6,
        "dropped": 1,
        "lost": 9,
        "transactions": 4,
        "verdicts": {"fresh": 7, "duplicate": 2, "conflict": 1},
        "dead_letters": {"conflict": 1, "identity": 3},
    }
    exposed.metrics.on_start(3, {0: lane(0, 12, **counters), 1: lane(1, 5, read=2)})
    assert exposed.lane("pipeline_records_read_total") == 10
    assert exposed.lane("pipeline_records_read_total", 1) == 2
    assert exposed.lane("pipeline_records_written_total") == 6
    assert exposed.lane("pipeline_records_dropped_total") == 1
    assert exposed.lane("pipeline_records_lost_total") == 9
    assert exposed.lane("pipeline_lane_transactions_total") == 4
    assert exposed.lane("pipeline_lane_next_offset") == 12
    hits = {hit: exposed.lane("pipeline_dedup_hits_total", verdict=hit) for hit in families.HITS}
    assert hits == {"duplicate": 2, "stale": 0, "old-epoch": 0, "conflict": 1}
    letters = {why: exposed.lane("pipeline_dead_letters_total", reason=why) for why in families.REASONS}
    assert {why: count for why, count in letters.items() if count} == {"identity": 3, "conflict": 1}
    assert {"stale", "old-epoch", "decode", "trailing", "limits", "framing", "encode", "oversized"} <= letters.keys()
    assert exposed.value("pipeline_run") == 3


def test_a_record_that_comes_twice_is_counted_once(exposed: Exposed) -> None:
    for _ in range(3):
        exposed.metrics.on_batch(batch(report(lane(0, 5, read=5))))
    assert exposed.lane("pipeline_records_read_total") == 5


@pytest.mark.thorough
@settings(deadline=None, database=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_figures_of_a_lane_never_fall_in_whatever_order_its_records_come(offsets: list[int]) -> None:
    exposed, shown = Exposed(), []
    for offset in offsets:
        exposed.metrics.on_batch(batch(report(lane(0, offset, read=offset, transactions=offset))))
        shown.append(exposed.lane("pipeline_records_read_total"))
        assert exposed.lane("pipeline_lane_transactions_total") == exposed.lane("pipeline_lane_next_offset")
    assert shown == [max(offsets[: number + 1]) for number in range(len(offsets))]


def test_the_size_of_a_ledger_is_the_one_that_its_setting_bounds(exposed: Exposed) -> None:
    record = lane(producers=3)
    exposed.metrics.on_start(1, {0: record})
    size = Ledger(settings_of().dedup, record.producers).size_bytes
    assert exposed.lane("pipeline_ledger_bytes") == cost(record.producers) == size > 0
    assert exposed.lane("pipeline_ledger_producers") == 3


def test_what_a_process_did_is_added_up(exposed: Exposed) -> None:
    outcomes = {"committed": 2, "unknown_committed": 1, "fenced": 3}
    for _ in range(2):
        exposed.metrics.on_batch(
            batch(report(lane(0, 5), commit_of(), commit_of(), skipped=4, outcomes=outcomes), seconds=1.5)
        )
    assert exposed.value("pipeline_records_skipped_total") == 8
    shown = {outcome: exposed.value("pipeline_transactions_total", outcome=outcome) for outcome in families.OUTCOMES}
    assert {outcome: count for outcome, count in shown.items() if count} == {
        "committed": 4,
        "unknown_committed": 2,
        "fenced": 6,
    }
    assert exposed.value("pipeline_batch_duration_seconds_sum") == 3.0
    assert exposed.value("pipeline_transaction_duration_seconds_sum") == 4 * 0.75
    assert exposed.value("pipeline_transaction_phase_seconds_sum", phase="commit") == 1.0
    assert exposed.value("pipeline_transaction_phase_seconds_count", phase="fence") == 4


def test_every_record_of_a_commit_has_its_age_in_the_histogram(exposed: Exposed) -> None:
    ages_ms = [0, 1, 2, 40, 40, 700, 59_000, 60_000, 3_600_000]
    exposed.metrics.on_batch(batch(report(lane(), commit_of(*(NOW_MS - age for age in ages_ms)))))
    for bound in BUCKETS:
        below = sum(age <= bound * 1000 for age in ages_ms)
        assert exposed.value("pipeline_end_to_end_latency_seconds_bucket", le=str(bound)) == below, bound
    assert exposed.value("pipeline_end_to_end_latency_seconds_bucket", le="+Inf") == len(ages_ms)
    assert exposed.value("pipeline_end_to_end_latency_seconds_count") == len(ages_ms)
    assert exposed.value("pipeline_end_to_end_latency_seconds_sum") == sum(ages_ms) / 1000


def test_a_source_clock_ahead_of_ours_gives_no_negative_age() -> None:
    commit = commit_of(NOW_MS + 5_000, NOW_MS - 1_000)
    assert (commit.ages[0], sum(commit.ages), commit.age_seconds) == (1, 2, 1.0)


def test_a_record_without_a_timestamp_has_no_age() -> None:
    commit = commit_of(-1, NOW_MS)
    assert (commit.rows, sum(commit.ages), commit.age_seconds) == (2, 1, 0.0)


@settings(deadline=None, database=None)
@given(st.lists(st.integers(0, 100_000), max_size=50))
def test_ages_are_sorted_into_buckets_as_prometheus_does_it(ages: list[int]) -> None:
    commit = commit_of(*(NOW_MS - age for age in ages))
    expected = [sum(age / 1000 <= bound for age in ages) for bound in BUCKETS]
    assert np.cumsum(commit.ages).tolist() == [*expected, len(ages)]


def test_lag_is_counted_to_the_last_stable_offset_and_is_zero_when_caught_up(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane(0, 10), 1: lane(1, 20)})
    exposed.poll({0: 10, 1: 27}, {1: time.time() - 40.0})
    assert exposed.lane("pipeline_lag_records") == 0
    assert exposed.lane("pipeline_lag_seconds") == 0
    assert exposed.lane("pipeline_lag_records", 1) == 7
    assert exposed.lane("pipeline_lag_seconds", 1) == pytest.approx(40.0, abs=5.0)


def test_a_lane_that_passed_what_the_last_poll_saw_has_no_lag(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane(0, 10)})
    exposed.poll({0: 12}, {0: time.time() - 9.0})
    exposed.metrics.on_batch(batch(report(lane(0, 15))))
    assert exposed.lane("pipeline_lag_records") == 0
    assert exposed.lane("pipeline_lag_seconds") == 0


def test_offsets_without_a_record_to_read_are_no_lag_in_seconds(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane(0, 10)})
    exposed.poll({0: 11}, {0: NOTHING_UNREAD})
    assert (exposed.lane("pipeline_lag_records"), exposed.lane("pipeline_lag_seconds")) == (1, 0)


def test_a_clock_ahead_of_ours_gives_no_negative_lag(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane(0, 10)})
    exposed.poll({0: 11}, {0: time.time() + 60.0})
    assert exposed.lane("pipeline_lag_seconds") == 0


def test_open_transactions_are_shown_by_topic(exposed: Exposed) -> None:
    exposed.poll({0: 1})
    assert exposed.lane("pipeline_open_transaction_records") == 3
    labels = {"topic": "receipts", "partition": "1"}
    assert exposed.registry.get_sample_value("pipeline_open_transaction_records", labels) == 0


def test_lag_that_nobody_knows_any_more_is_not_shown(exposed: Exposed) -> None:
    exposed.metrics.on_start(1, {0: lane(0, 10)})
    assert exposed.lane("pipeline_lag_records") is None
    exposed.poll({0: 10}, age=STALE_SECONDS / 2)
    assert exposed.lane("pipeline_lag_records") == 0
    exposed.poll({0: 10}, age=STALE_SECONDS * 2)
    for name in ("pipeline_lag_records", "pipeline_lag_seconds", "pipeline_open_transaction_records"):
        assert exposed.lane(name) is None
    age = time.time() - (exposed.value("pipeline_last_poll_timestamp_seconds") or 0.0)
    assert age == pytest.approx(STALE_SECONDS * 2, abs=5.0)


def test_progress_is_the_time_of_the_last_commit(exposed: Exposed) -> None:
    assert exposed.value("pipeline_last_progress_timestamp_seconds") is None
    exposed.metrics.on_batch(batch(report(lane(), commit_of())))
    assert exposed.value("pipeline_last_progress_timestamp_seconds") == NOW_MS / 1000
    exposed.metrics.on_batch(batch(report(lane())))
    assert exposed.value("pipeline_last_progress_timestamp_seconds") == NOW_MS / 1000
    exposed.metrics.on_start(2, {})
    assert exposed.value("pipeline_last_progress_timestamp_seconds") == pytest.approx(time.time(), abs=5.0)


def test_a_lane_that_was_stopped_before_its_first_commit_does_not_hide_the_others(exposed: Exposed) -> None:
    stopped = LaneReport(1)
    stopped.note_stop(SafeStop("why"))
    Observer([exposed.metrics]).on_batch(Batch(1).done([report(lane(0, 5, read=5)), stopped]))
    assert exposed.lane("pipeline_records_read_total") == 5
    assert exposed.lane("pipeline_records_read_total", 1) is None


def test_a_watcher_that_breaks_neither_ends_the_job_nor_silences_the_next(exposed: Exposed) -> None:
    class Broken:
        def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
            raise ZeroDivisionError(run, lanes)

        def on_batch(self, batch: Batch) -> None:
            raise ZeroDivisionError(batch)

    observer = Observer([Broken(), exposed.metrics])
    observer.on_start(4, {}, Delivery())
    observer.on_batch(batch(report(lane(0, 5, read=5))))
    assert exposed.value("pipeline_run") == 4
    assert exposed.lane("pipeline_records_read_total") == 5


def test_the_versions_are_told(exposed: Exposed) -> None:
    [info] = [family for family in exposed.registry.collect() if family.type == "info"]
    labels = info.samples[0].labels
    assert labels["app"] == "shop"
    assert (labels["delivery"], labels["atomicity"]) == ("exactly-once", "lane")
    for name in ("version", "python", "spark", "librdkafka"):
        assert re.match(r"\d+\.\d+", labels[name]), name


def test_no_label_can_hold_an_id() -> None:
    bounded = {"topic", "partition", *KNOWN_VALUES}
    assert {label for family in FAMILIES if family is not families.INFO for label in family.labels} == bounded


def test_the_document_lists_every_metric_as_the_code_has_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert markdown() in text, "copy the output of: python -m pipeline.observe.families"


def test_the_document_names_no_metric_that_does_not_exist() -> None:
    named = set(re.findall(r"\bpipeline_[a-z_]+", DOCUMENT.read_text(encoding="utf-8")))
    exist = {family.name for family in FAMILIES}
    histograms = {family.name for family in FAMILIES if family.kind == "histogram"}
    assert named <= exist | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_improve(exposed: Exposed) -> None:
    exposed.metrics.on_start(3, {0: lane()})
    exposed.metrics.on_batch(batch(report(lane(next_offset=4), commit_of(NOW_MS))))
    exposed.poll({0: 5}, {0: time.time()})
    said = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=generate_latest(exposed.registry),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (said.returncode, said.stdout + said.stderr) == (0, b"")
