"""Lane records, reports and batches as a run hands them to its watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.record import Counters, LaneRecord, encode
from pipeline.lanes.report import Commit, LaneReport
from pipeline.observe.progress import Batch
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC = "payments"


def settings_of(**sections: Mapping[str, Any]) -> Settings:
    """Return settings for no cluster at all."""
    values: dict[str, Any] = {
        "app": {"id": "shop"},
        "source": {"bootstrap": "127.0.0.1:1", "topic": TOPIC},
        "output": {"topics": ("receipts",), "dead_letter_topic": "dead"},
    }
    return build({**values, **sections})


def lane(partition: int = 0, next_offset: int = 0, *, producers: int = 0, **counters: Any) -> LaneRecord:
    """Return a lane record; `counters` are those that differ from 0."""
    return LaneRecord(
        app="shop",
        source_topic=TOPIC,
        topic_id=(1, 2),
        partition=partition,
        run=1,
        start_offset=0,
        next_offset=next_offset,
        producers=Columns.of(ProducerState(f"p{number}", 0, None, [0], [0], [3], [7]) for number in range(producers)),
        counters=Counters(**counters),
        code_version="1",
    )


def report(record: LaneRecord, *commits: Commit, **given: Any) -> LaneReport:
    """Return the report of a task that brought its lane to this record."""
    return LaneReport(record.partition, encode(record), commits=list(commits), **given)


def batch(*reports: LaneReport, seconds: float = 0.5) -> Batch:
    """Return a batch of these reports."""
    done = Batch(1).done(list(reports))
    done.seconds = seconds
    return done
