"""Taking over: every run has a number of its own, the newest wins, and what earlier runs left open is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.kafka import create_topic
from tests.support.lanes import App, leave_open, provisioned, spy_on_producers

from pipeline.errors import Replaced, SafeStop
from pipeline.kafka import Fenced
from pipeline.lanes.record import decode, encode
from pipeline.lanes.takeover import fence, take_over, write_record
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from pipeline.local.broker import Broker

pytestmark = pytest.mark.container

TIMED_OUT = -185  # librdkafka's local code


def runs(app: App) -> list[int]:
    """Return the run number in the record of each lane."""
    return [app.lane(partition).run for partition in range(app.source.partitions)]


def test_each_run_takes_the_next_number_and_writes_it_into_every_lane(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=3)
    for expected in (1, 2):
        run, recalled = take_over(app.settings, app.source)
        assert run == expected
        assert runs(app) == [expected] * 3
        assert recalled == {partition: app.recalled(partition) for partition in range(3)}


def test_the_number_is_above_the_highest_found_in_any_lane(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=2)
    recalled = app.recalled(1)
    value = encode(replace(decode(recalled.value), run=7))
    write_record(app.settings, fence(app.settings, 1), 1, value, recalled.end)
    assert take_over(app.settings, app.source)[0] == 8
    assert runs(app) == [8, 8]


def test_what_a_lane_knows_is_kept(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 10)
    before = app.lane()
    take_over(app.settings, app.source)
    assert app.lane() == replace(before, run=1)


def test_what_is_handed_over_is_good_for_the_first_batch(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    run, recalled = take_over(app.settings, app.source)
    report = app.write(0, 5, run=run, recalled=recalled[0])
    assert (report.failures, app.written()) == ({}, list(range(5)))


def test_a_task_of_an_earlier_run_ends_its_job(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    first, recalled = take_over(app.settings, app.source)
    second, _ = take_over(app.settings, app.source)
    for handed_over in (recalled[0], None):
        with pytest.raises(Replaced, match=f"replaced by run {second}"):
            app.write(0, 5, run=first, recalled=handed_over)
    app.write(0, 5, run=second)
    assert app.written() == list(range(5))


def test_a_transaction_of_an_earlier_run_is_aborted_and_cannot_commit(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    zombie = leave_open(app)
    take_over(app.settings, app.source)
    with pytest.raises(Fenced):
        zombie.commit()
    assert (app.written(), runs(app)) == ([], [1])


@pytest.mark.parametrize("rivals", [2, 3])
def test_of_runs_that_start_at_once_each_has_its_own_number_and_one_has_all_lanes(broker: Broker, rivals: int) -> None:
    app = provisioned(broker.bootstrap, partitions=4)
    with ThreadPoolExecutor(rivals) as pool:
        taken = list(pool.map(lambda _: take_over(app.settings, app.source)[0], range(rivals)))
    assert len(set(taken)) == rivals
    assert runs(app) == [max(taken)] * 4
    for run in taken:
        if run == max(taken):
            app.write(0, 5, run=run)
        else:
            with pytest.raises(Replaced, match=f"replaced by run {max(taken)}"):
                app.write(0, 5, run=run)
    assert app.written() == list(range(5))


def test_an_uncertain_take_over_is_repeated_with_a_higher_number(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = provisioned(broker.bootstrap, partitions=2)
    spy = spy_on_producers(monkeypatch, [])
    broken: list[int] = []

    class Uncertain(spy):  # type: ignore[misc,valid-type]
        def commit_transaction(self, *args: Any) -> None:
            super().commit_transaction(*args)
            if not broken:
                broken.append(1)
                raise KafkaException(KafkaError(TIMED_OUT))

    monkeypatch.setattr("pipeline.lanes.transaction.Producer", Uncertain)
    run, recalled = take_over(app.settings, app.source)
    assert run == 2
    assert runs(app) == [2, 2]
    assert recalled == {partition: app.recalled(partition) for partition in range(2)}


def test_lanes_of_a_source_topic_that_was_created_anew_are_not_taken(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    topics = Topics(broker.bootstrap)
    topics.admin.delete_topics([app.source.name])[app.source.name].result(30)
    create_topic(broker.bootstrap, app.source.name)
    with pytest.raises(SafeStop, match=f"source topic {app.source.name} was deleted and created anew"):
        take_over(app.settings, topics.one(app.source.name, "source topic"))
    assert runs(app) == [0]
