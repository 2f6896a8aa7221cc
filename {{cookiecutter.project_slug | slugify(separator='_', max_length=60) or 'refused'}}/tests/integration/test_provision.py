"""Provisioning: creates what is missing, begins each lane once and where it was told, and refuses what is wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, fresh, wait_until
from tests.support.lanes import App, fill, provisioned, row, settings_for

from pipeline.errors import BadSettings, SafeStop
from pipeline.lanes.provision import provision
from pipeline.lanes.takeover import take_over
from pipeline.lanes.topics import Topics
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.settings import Settings

MILLISECOND = 1_700_000_000_000


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Broker]:
    """A second cluster."""
    with Broker() as running:
        yield running


def starting(broker: Broker, start: str, records: int = 0) -> Settings:
    """Return the settings of an app that begins at `start` of a topic with one record for each millisecond."""
    topic = create_topic(broker.bootstrap, fresh("source"))
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for number in range(records):
        producer.produce(topic, b"v", partition=0, timestamp=MILLISECOND + number)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return settings_for(broker.bootstrap, topic, source={"start": start})


def first_offset(settings: Settings) -> tuple[int, int]:
    """Provision the app and return where its lane begins and stands."""
    provision(settings, lambda _: None)
    lane = App(settings, Topics(settings.source.bootstrap).one(settings.source.topic, "")).lane()
    return lane.start_offset, lane.next_offset


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic and wait until the cluster tells of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_SECONDS)
    wait_until(lambda: Topics(bootstrap).one(topic, "").partitions == partitions)


def test_everything_is_created_and_every_lane_gets_its_first_record(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=3, output={"partitions": 2})
    topics = Topics(broker.bootstrap)
    lanes = app.settings.lane_topic
    found = topics.describe([app.out, app.settings.output.dead_letter_topic, lanes])
    assert {name: topic.partitions for name, topic in found.items()} == {
        app.out: 2,
        app.settings.output.dead_letter_topic: 2,
        lanes: 3,
    }
    assert topics.config(lanes)["cleanup.policy"] == "compact"
    for partition in range(3):
        (lane,) = app.lane_records(partition)
        assert (lane.partition, lane.run, lane.next_offset, lane.topic_id) == (partition, 0, 0, app.source.id)
    assert app.says[-3:] == [f"lane {partition}: begins at offset 0" for partition in range(3)]


def test_provisioning_again_changes_nothing(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 5)
    before = app.recalled()
    says: list[str] = []
    provision(app.settings, says.append)
    assert app.recalled() == before
    assert says[-1] == "lane 0: stands at offset 5"
    app.write(5, 8)
    assert app.written() == list(range(8))


def test_two_provisioners_at_once_write_one_first_record_for_each_lane(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    grow(broker.bootstrap, app.source.name, 4)
    grow(broker.bootstrap, app.settings.lane_topic, 4)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: provision(app.settings, lambda _: None), range(2)))
    assert [len(app.lane_records(partition)) for partition in range(4)] == [1, 1, 1, 1]


def test_lanes_grow_with_the_source_and_the_old_ones_stay(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    app.write(0, 5)
    grow(broker.bootstrap, app.source.name, 3)
    says: list[str] = []
    provision(app.settings, says.append)
    assert f"topic {app.settings.lane_topic}: grown from 1 to 3 partitions, as the source did" in says
    assert [app.lane(partition).next_offset for partition in range(3)] == [5, 0, 0]


@pytest.mark.parametrize("policy", ["compact,delete", "delete"])
def test_a_lane_topic_that_deletes_is_refused(broker: Broker, policy: str) -> None:
    settings = settings_for(broker.bootstrap, create_topic(broker.bootstrap))
    create_topic(broker.bootstrap, settings.lane_topic, config={"cleanup.policy": policy})
    with pytest.raises(SafeStop, match=f"lane topic {settings.lane_topic} has cleanup.policy=.*delete"):
        provision(settings, lambda _: None)


def test_a_lane_topic_with_more_partitions_than_the_source_is_refused(broker: Broker) -> None:
    settings = settings_for(broker.bootstrap, create_topic(broker.bootstrap, partitions=2))
    create_topic(broker.bootstrap, settings.lane_topic, 3, {"cleanup.policy": "compact"})
    with pytest.raises(SafeStop, match=r"has 3 partitions, but source topic .* only 2"):
        provision(settings, lambda _: None)


def test_a_source_topic_that_is_not_there_is_not_created(broker: Broker) -> None:
    settings = settings_for(broker.bootstrap, fresh("nowhere"))
    with pytest.raises(SafeStop, match=f"source topic {settings.source.topic} does not exist"):
        provision(settings, lambda _: None)
    assert Topics(broker.bootstrap).describe([settings.source.topic, *settings.output.topics]) == {}


@pytest.mark.parametrize(("start", "expected"), [("earliest", 0), ("latest", 9), ('offsets:{"0": 4}', 4)])
def test_a_lane_begins_where_the_setting_says(broker: Broker, start: str, expected: int) -> None:
    assert first_offset(starting(broker, start, records=9)) == (expected, expected)


@pytest.mark.parametrize(("after", "expected"), [(-5_000, 0), (3, 3), (8, 8), (5_000, 9)])
def test_a_lane_begins_at_the_first_record_of_a_time_or_at_the_end(broker: Broker, after: int, expected: int) -> None:
    moment = datetime.fromtimestamp(MILLISECOND // 1_000, UTC).timestamp() + after / 1_000
    start = f"time:{datetime.fromtimestamp(moment, UTC).isoformat(timespec='milliseconds')}"
    assert first_offset(starting(broker, start, records=9)) == (expected, expected)


def test_an_open_upstream_transaction_lies_behind_the_latest_offset(broker: Broker) -> None:
    settings = starting(broker, "latest", records=3)
    upstream = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("upstream"), **QUIET})
    upstream.init_transactions(DEADLINE_SECONDS)
    upstream.begin_transaction()
    upstream.produce(settings.source.topic, b"open", partition=0)
    upstream.flush(DEADLINE_SECONDS)
    assert first_offset(settings) == (3, 3)
    upstream.abort_transaction(DEADLINE_SECONDS)


@pytest.mark.parametrize("start", ['offsets:{"1": 4}', 'offsets:{"0": 4, "1": 4}'])
def test_offsets_of_other_partitions_than_the_source_has_are_refused_before_any_lane_begins(
    broker: Broker, start: str
) -> None:
    settings = starting(broker, start)
    with pytest.raises(BadSettings, match=r"source\.start = "):
        provision(settings, lambda _: None)
    assert Topics(broker.bootstrap).offsets(settings.lane_topic, [0], OffsetSpec.latest()) == {0: 0}


def test_the_dead_letter_topic_takes_the_largest_record_of_the_source(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, output={"compression": "none"})
    value = bytes(1_048_400)
    fill(broker.bootstrap, app.source.name, [(b"k", value, [])], {"message.max.bytes": 2_000_000})
    app.write(0, 1, [row(0, [], producer_id=None)])
    (letter,) = app.letters()
    assert letter.value == value


def test_source_and_output_may_be_two_clusters(broker: Broker, elsewhere: Broker) -> None:
    app = provisioned(broker.bootstrap, output={"bootstrap": elsewhere.bootstrap})
    fill(broker.bootstrap, app.source.name, [(b"k", b"%d" % number, []) for number in range(10)])
    rows = app.rows(0, 10)
    rows[4] = row(4, [], producer_id=None)
    app.write(0, 10, rows)
    app.write(0, 10, rows)
    assert app.written() == [offset for offset in range(10) if offset != 4]
    assert [letter.value for letter in app.letters()] == [b"4"]
    assert app.lane().next_offset == 10
    everything = [app.out, app.settings.output.dead_letter_topic, app.settings.lane_topic]
    assert Topics(broker.bootstrap).describe(everything) == {}
    assert Topics(elsewhere.bootstrap).describe([app.source.name]) == {}


def test_every_lane_may_be_given_its_own_start(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=2)
    given = json.dumps({"0": 1, "1": 2})
    settings = settings_for(broker.bootstrap, app.source.name, source={"start": f"offsets:{given}"})
    provision(settings, lambda _: None)
    other = App(settings, app.source)
    assert [other.lane(partition).next_offset for partition in range(2)] == [1, 2]


def test_a_partition_added_to_an_app_that_has_run_is_read_from_its_first_record(broker: Broker) -> None:
    settings = starting(broker, "latest", records=3)
    assert first_offset(settings) == (3, 3)
    take_over(settings, Topics(broker.bootstrap).one(settings.source.topic, ""))
    grow(broker.bootstrap, settings.source.topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    producer.produce(settings.source.topic, b"sent before the lane was there", partition=1)
    assert producer.flush(DEADLINE_SECONDS) == 0
    provision(settings, lambda _: None)
    app = App(settings, Topics(broker.bootstrap).one(settings.source.topic, ""))
    assert [app.lane(partition).next_offset for partition in (0, 1)] == [3, 0]
