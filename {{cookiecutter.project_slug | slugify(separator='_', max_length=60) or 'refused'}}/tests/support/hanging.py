"""A transaction that hangs: confirmed to its writer, its coordinator done with it, and no marker in its partitions.

Kafka 4.3.1 leaves that behind when it is killed right after it confirmed a commit (KAFKA-20734): the coordinator that
starts again may look for the partitions before it knows of them, and takes them for deleted. That happens in about
four of ten kills, too seldom for a test; so here the markers are cut off the log of a broker that was killed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import OffsetSpec
from tests.support.lanes import App, provisioned
from tests.support.rows import columnar

from pipeline.lanes.rows import Chunk
from pipeline.lanes.share import ShareWriter
from pipeline.lanes.topics import Topics
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport

# A killed node may come back after 2 s.
HASTY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
# A batch of records begins with its offset, and the length of all that follows.
OFFSET_BYTES, LENGTH_BYTES = 8, 4


class Hanging(NamedTuple):
    """A lane whose rows 0 to 2 are visible, and whose rows 3 to 5 were confirmed and hang, as does their record."""

    broker: Broker
    app: App
    confirmed: Recalled

    def ends(self) -> list[tuple[int, int]]:
        """Return the last stable offset and the high watermark of the lane's partition, and of the output's."""
        topics = Topics(self.broker.bootstrap)
        return [
            (
                topics.offsets(name, [0], OffsetSpec.latest())[0],
                topics.offsets(name, [0], OffsetSpec.latest(), committed=False)[0],
            )
            for name in (self.app.settings.lane_topic, self.app.out)
        ]


@contextmanager
def hanging(by_lane: int = 0) -> Iterator[Hanging]:
    """Start a broker, and leave a confirmed transaction without its markers; it may be under another lane's id."""
    with Broker(properties=HASTY) as broker:
        app = provisioned(broker.bootstrap, transaction={"timeout_ms": 1_000, "chunk_seconds": 0.5})
        app.write(0, 3)
        report = write_under(app, by_lane, 3, 6)
        assert app.written() == list(range(6))
        app.recalled()
        broker.kill()
        for topic in (app.settings.lane_topic, app.out):
            cut_last_batch(broker.log().parent / "data" / f"{topic}-0" / f"{0:020}.log")
        broker.restart()
        found = Hanging(broker, app, report.recalled)
        assert found.ends() == [(4, 5), (4, 7)]
        yield found


def write_under(app: App, by_lane: int, first: int, until: int) -> LaneReport:
    """Write lane 0 as a task does whose lowest lane is this one."""
    writer = ShareWriter([app.task(first, until)], app.settings.transactional_id(by_lane))
    writer.gather(0, Chunk(first, until, [columnar(app.rows(first, until))]))
    writer.write()
    return writer.reports[0]


def cut_last_batch(log: Path) -> None:
    """Cut the last batch off a log: the marker, which stands in one of its own."""
    data = log.read_bytes()
    start = following = 0
    while following < len(data) and (length := int.from_bytes(data[following + OFFSET_BYTES :][:LENGTH_BYTES])):
        start, following = following, following + OFFSET_BYTES + LENGTH_BYTES + length
    with log.open("r+b") as file:
        file.truncate(start)
