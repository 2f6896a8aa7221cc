"""Steps of docs/operations.md that change where a job stands, tried as they are written there.

O1   the output moves to another cluster, at the very offset where each lane stands
O2   the lane topic is lost: a new app id begins where the consumer group stands, and nothing is lost
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.job import App, new_app
from tests.support.kafka import DEADLINE_SECONDS, QUIET, fresh

from pipeline.errors import SafeStop
from pipeline.lanes.provision import provision
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def begun_at(app: App, offsets: Mapping[int, int], **output: str) -> App:
    """Return another app on the same source, provisioned to begin at these offsets."""
    name = fresh("app")
    topics = {"topics": (f"{name}-receipts", f"{name}-alerts"), "dead_letter_topic": f"{name}-dead", **output}
    start = f"offsets:{json.dumps({str(partition): offset for partition, offset in offsets.items()})}"
    checkpoint = {"checkpoint": str(app.folder / name)}
    made = app.with_settings(app={"id": name}, output=topics, source={"start": start}, spark=checkpoint)
    provision(made.settings, lambda _: None)
    return made


def receipts(*apps: App) -> Counter[str]:
    """Count the receipts of each payment in the output of all these apps."""
    found = [record for app in apps for record in app.written(app.settings.output.topics[0])]
    return Counter(json.loads(record.value or b"")["id"] for record in found)


@pytest.mark.fault("O1")
def test_the_output_moves_to_another_cluster_between_two_records(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path)
    for partition in range(2):
        app.pay(partition, range(100 * partition, 100 * partition + 60))
    seen = app.run()
    stands = {partition: lane.next_offset for partition, lane in seen.lanes.items()}
    for partition in range(2):
        app.pay(partition, range(100 * partition + 60, 100 * partition + 100))
    with Broker() as other:
        moved = begun_at(app, stands, bootstrap=other.bootstrap)
        moved.run()
        assert receipts(app, moved) == Counter(str(number) for number in range(200))
        assert len(receipts(moved)) == 80
        moved.assert_exact()


@pytest.mark.fault("O2")
def test_after_the_loss_of_the_lane_topic_nothing_is_lost(broker: Broker, tmp_path: Path) -> None:
    app = new_app(broker.bootstrap, tmp_path)
    app.pay(0, range(50))
    app.run()
    app.delete(app.settings.lane_topic)
    app.pay(0, range(50, 80))
    with pytest.raises(SafeStop, match=r"under this app.id would repeat its output: do what docs/operations.md says"):
        app.run()
    anew = begun_at(app, group_offsets(app))
    anew.run()
    found = receipts(app, anew)
    assert set(found) == {str(number) for number in range(80)}
    assert set(found.values()) == {1}, "the group had been told of all that was written"


def group_offsets(app: App) -> dict[int, int]:
    """Return what an ordinary tool shows of the app's consumer group."""
    consumer = Consumer({"bootstrap.servers": app.bootstrap, "group.id": app.settings.group, **QUIET})
    try:
        places = [TopicPartition(app.topic, partition) for partition in range(app.partitions)]
        found = consumer.committed(places, DEADLINE_SECONDS)
        return {place.partition: max(place.offset, 0) for place in found}
    finally:
        consumer.close()
