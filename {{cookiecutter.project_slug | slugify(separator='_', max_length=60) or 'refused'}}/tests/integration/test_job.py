"""Whole jobs on a real broker: what is sent is processed once, and what must not go on stops with one line."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, udf
from tests.support.job import App, new_app, payment, payments
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, read_committed

from pipeline.errors import SafeStop, Unreachable
from pipeline.flow.outputs import emit, output
from pipeline.flow.preflight import Checked
from pipeline.lanes.provision import provision

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.flow.job import Job
    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch

NO_ANSWER = "describe topic: no answer"
# What provisioning would do to an app whose lane records are lost.
WARNED = "if it has run before, its history is lost, and to provision it under this app.id would repeat its output"
SMALL_BATCHES = {"max_offsets_per_trigger": 300}


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app."""
    return new_app(broker.bootstrap, tmp_path)


def stop(job: Job, _: Batch) -> None:
    """End the job after the batch in hand."""
    job.stop.set()


def stopped_safely(app: App) -> str:
    """Run a job that must stop to protect the data; returns its line."""
    with pytest.raises(SafeStop) as stopped:
        app.run()
    assert stopped.value.exit_code == 3
    line = str(stopped.value)
    assert "\n" not in line
    return line


@pytest.mark.container
@pytest.mark.fault("A4")
def test_payments_are_processed_exactly_and_lag_tools_see_no_lag_behind_control_records(app: App) -> None:
    app.send(3_000)
    app.abort()
    seen = app.with_settings(source={"max_offsets_per_trigger": 1_500}).run()
    assert len(seen.batches) >= 3
    assert {lane: record.next_offset for lane, record in seen.lanes.items()} == app.ends()
    assert app.lag() == 0
    app.assert_exact()


@pytest.mark.fault("A3")
def test_rows_of_aborted_upstream_transactions_never_appear(app: App) -> None:
    app.pay(0, range(5))
    app.abort()
    app.pay(0, range(5, 10))
    seen = app.run()
    receipts, _ = app.settings.output.topics
    values = [record.value or b"" for record in app.written(receipts)]
    assert len(values) == 10
    assert not [value for value in values if b"aborted" in value]
    assert sum(lane.counters.read for lane in seen.lanes.values()) == 10


@pytest.mark.container
@pytest.mark.fault("E8")
def test_other_batch_and_chunk_sizes_change_nothing_in_the_output(app: App) -> None:
    app.send(1_000)
    first = app.with_settings(source={"max_offsets_per_trigger": 250}, transaction={"chunk_rows": 37}).run(stop)
    assert len(first.batches) == 1
    assert len(first.batches[0].reports[0].commits) > 2
    second = app.with_settings(source={"max_offsets_per_trigger": 401}, transaction={"chunk_rows": 50_000}).run()
    assert second.run == first.run + 1
    assert len(second.batches) > 1
    app.assert_exact()


@pytest.mark.fault("A7")
def test_partitions_that_are_added_while_it_runs_get_lanes_by_themselves_if_allowed(app: App) -> None:
    app.send(500)
    growing = app.with_settings(source={"new_partitions": "provision"})

    def grow(job: Job, batch: Batch) -> None:
        if app.partitions == 2:
            # Nothing more arrives in the old partitions: no batch of theirs could bring the news.
            app.grow(4)
            app.pay(2, range(50), "early")
            app.pay(3, range(50), "late")
        elif {2, 3} <= batch.lanes.keys():
            job.stop.set()

    seen = growing.run(grow, until_caught_up=False)
    assert seen.run == 2, "taken over once more, with the new lanes"
    assert sorted(seen.lanes) == [0, 1, 2, 3]
    app.assert_exact()


def test_a_cluster_that_does_not_answer_before_a_batch_is_waited_for(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.send(300)
    real, unanswered = Checked.watch, [1, 2, 3]

    def watch(checked: Checked) -> None:
        if unanswered:
            unanswered.pop()
            raise Unreachable(NO_ANSWER)
        real(checked)

    monkeypatch.setattr(Checked, "watch", watch)
    assert app.run().run == 1
    assert not unanswered
    app.assert_exact()


def test_why_a_job_failed_is_told_even_if_its_lanes_cannot_be_closed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.send(300)

    def watch(_: Checked) -> None:
        msg = "the source is not what it was"
        raise SafeStop(msg)

    def close(*_: object, **__: object) -> None:
        raise Unreachable(NO_ANSWER)

    monkeypatch.setattr(Checked, "watch", watch)
    monkeypatch.setattr("pipeline.flow.shutdown.close_lanes", close)
    assert stopped_safely(app) == "the source is not what it was"


def test_partitions_that_were_added_before_the_start_get_lanes_by_themselves_if_allowed(app: App) -> None:
    app.grow(3)
    app.pay(2, range(20))
    assert "has 3 partitions, but only 2 lanes: run `pipeline provision`" in stopped_safely(app)
    app.with_settings(source={"new_partitions": "provision"}).run()
    app.assert_exact()


@pytest.mark.fault("A7")
def test_partitions_that_are_added_while_it_runs_stop_it_if_not_allowed(app: App) -> None:
    app.send(500)
    with pytest.raises(SafeStop, match=r"has 4 partitions, but only 2 lanes: run `pipeline provision`") as stopped:
        app.run(lambda _job, _batch: app.grow(4) if app.partitions == 2 else None, until_caught_up=False)
    assert stopped.value.exit_code == 3
    provision(app.settings, lambda _: None)
    app.run()
    app.assert_exact()


@pytest.mark.fault("A6")
def test_a_source_topic_that_was_created_anew_stops_it(app: App) -> None:
    app.send(500)
    app.run()
    app.delete(app.topic)
    create_topic(app.bootstrap, app.topic, 2)
    assert f"source topic {app.topic} was deleted and created anew" in stopped_safely(app)


@pytest.mark.fault("A6")
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created anew"])
def test_a_source_topic_that_is_deleted_while_it_runs_stops_it(app: App, *, again: bool) -> None:
    app.send(500)
    deleted = []

    def delete(_job: Job, _batch: Batch) -> None:
        app.delete(app.topic)
        if again:
            create_topic(app.bootstrap, app.topic, 2)
        deleted.append(time.monotonic())

    with pytest.raises(SafeStop, match=f"source topic {app.topic} was deleted") as stopped:
        app.run(delete, until_caught_up=False)
    assert stopped.value.exit_code == 3
    assert time.monotonic() - deleted[0] < 60


@pytest.mark.fault("A5")
def test_records_that_retention_took_unread_stop_it_with_their_offsets(app: App) -> None:
    app.send(500)
    ends = app.ends()
    app.lose({0: 40})
    line = stopped_safely(app)
    assert line.startswith(f"source topic {app.topic} [0]: offsets 0 to 39 were deleted by retention")
    assert "`pipeline provision --accept-loss`" in line
    assert app.ends() == ends


@pytest.mark.fault("A5")
def test_records_that_retention_takes_while_it_runs_stop_it_with_their_offsets(app: App) -> None:
    app.send(1_000)
    slow = app.with_settings(source=SMALL_BATCHES)
    with pytest.raises(SafeStop, match=rf"source topic {app.topic} \[\d\]: offsets \d+ to \d+ were deleted") as stopped:
        slow.run(lambda _job, _batch: app.lose(app.ends()))
    assert stopped.value.exit_code == 3


@pytest.mark.parametrize("kind", ["lanes", "output", "dead letters"])
def test_a_missing_topic_stops_it_and_is_never_created(app: App, kind: str) -> None:
    topics = {
        "lanes": app.settings.lane_topic,
        "output": app.settings.output.topics[0],
        "dead letters": app.settings.output.dead_letter_topic,
    }
    app.delete(topics[kind])
    line = stopped_safely(app)
    assert f"topic {topics[kind]} does not exist" in line
    assert "`pipeline provision`" in line
    assert (WARNED in line) == (kind == "lanes")
    admin = AdminClient({"bootstrap.servers": app.bootstrap, **QUIET})
    assert topics[kind] not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_a_lane_without_a_record_stops_it(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path, provisioned=False)
    for topic in (*app.settings.output.topics, app.settings.output.dead_letter_topic):
        create_topic(broker.bootstrap, topic, 1)
    create_topic(broker.bootstrap, app.settings.lane_topic, 2, {"cleanup.policy": "compact"})
    line = stopped_safely(app)
    assert f"lane topic {app.settings.lane_topic} [" in line
    assert WARNED in line


@pytest.mark.parametrize("new_partitions", ["stop", "provision"])
def test_a_lane_topic_that_was_made_anew_with_too_few_partitions_is_not_taken_for_a_source_that_grew(
    app: App, new_partitions: str
) -> None:
    app.send(20)
    app.run()
    app.delete(app.settings.lane_topic)
    create_topic(app.bootstrap, app.settings.lane_topic, 1, {"cleanup.policy": "compact"})
    line = stopped_safely(app.with_settings(source={"new_partitions": new_partitions}))
    assert f"lane topic {app.settings.lane_topic} [0] holds no record" in line
    assert WARNED in line
    assert read_committed(app.bootstrap, app.settings.lane_topic) == []


def test_a_table_with_two_matches_for_an_event_stops_it_before_anything_is_written(app: App) -> None:
    app.pay(0, range(10))

    def transform(events: DataFrame) -> DataFrame:
        table = SparkSession.active().createDataFrame([("EUR", 1), ("EUR", 2)], "currency string, rate int")
        return payments(app.settings)(events.join(broadcast(table), "currency", "left"))

    with pytest.raises(SafeStop, match=r"^partition 0, offset 0 after 0: the user's function multiplied rows"):
        app.run(transform=transform)
    assert app.written(app.settings.output.topics[0]) == []
    app.run()
    app.assert_exact()


def test_an_output_to_a_topic_that_is_not_in_the_settings_stops_it_at_once(app: App) -> None:
    app.pay(0, range(10))

    def transform(events: DataFrame) -> DataFrame:
        return events.withColumn("outputs", emit(output("elsewhere", key="account", value="id")))

    asked = time.monotonic()
    with pytest.raises(SafeStop) as stopped:
        app.run(transform=transform)
    assert time.monotonic() - asked < 60, "far below the time-outs of a transaction and its retries"
    known = ", ".join(app.settings.output.topics)
    assert str(stopped.value) == (
        f"transform writes to topic 'elsewhere', which is not in output.topics ({known}): "
        "mend the transform, or add the topic there and run `pipeline provision`"
    )
    app.run()
    app.assert_exact()


def test_a_plan_with_a_table_that_turns_bad_while_it_runs_stops_it(app: App) -> None:
    app.send(500)
    turned = threading.Event()

    def transform(events: DataFrame) -> DataFrame:
        table = SparkSession.active().createDataFrame([("EUR", 1)], "currency string, rate int")
        known = events.join(broadcast(table), "currency", "left")
        return payments(app.settings)(known.filter("amount > 0") if turned.is_set() else known)

    with pytest.raises(SafeStop, match="the operator Filter is not allowed"):
        app.with_settings(source=SMALL_BATCHES).run(lambda _job, _batch: turned.set(), transform=transform)
    app.run()
    app.assert_exact()


@pytest.mark.parametrize("lanes_of_a_task", [1, 2])
@pytest.mark.parametrize("atomicity", ["lane", "batch"])
def test_rows_behind_one_on_which_a_function_fails_once_are_written_by_the_retry(
    app: App, tmp_path: Path, lanes_of_a_task: int, atomicity: str
) -> None:
    for lane in range(2):
        app.pay(lane, range(3_000))
    failed = tmp_path / "failed"
    rows: list[str] = []

    def fails_once(account: str) -> str:
        rows.append(account)
        # Far behind the first rows that the lane writer gets, and far before the last.
        if len(rows) == 2_000 and not failed.exists():
            failed.touch()
            msg = "a passing fault"
            raise OSError(msg)
        return account

    def transform(events: DataFrame) -> DataFrame:
        return payments(app.settings)(events.withColumn("account", udf(fails_once, "string")("account")))

    master = f"local[{2 // lanes_of_a_task},4]"
    app.with_settings(spark={"master": master}, delivery={"atomicity": atomicity}).run(transform=transform)
    assert failed.exists()
    app.assert_exact()


def test_a_transform_of_events_alone_is_not_called_again_once_it_runs(app: App) -> None:
    app.send(500)
    begun: list[bool] = []
    called: list[int] = []

    def transform(events: DataFrame) -> DataFrame:
        called.append(len(begun))
        return payments(app.settings)(events)

    app.with_settings(source=SMALL_BATCHES).run(lambda _job, _batch: begun.append(True), transform=transform)
    assert len(begun) > 1
    assert called == [0, 0]  # to be checked, and to be streamed
    app.assert_exact()


@pytest.mark.fault("A9")
def test_values_that_cannot_be_decoded_become_dead_letters_and_lose_nothing(app: App) -> None:
    app.put(
        [(0, seq, "till", value) for seq, value in enumerate((b"", None, payment(b"sound"), b"[]", b"{}", b"\xff"))]
    )
    seen = app.run()
    assert seen.lanes[0].counters.dead_letters == {"decode": 5}
    assert seen.lanes[0].counters.written == 1
    app.assert_exact()
