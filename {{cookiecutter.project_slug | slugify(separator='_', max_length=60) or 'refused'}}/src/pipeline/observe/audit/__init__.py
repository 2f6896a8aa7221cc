"""Audit: read the topics as any consumer would, compute by brute force what they must hold, and compare.

Guarantee: independent of the lanes. It shares with them the settings, the clients' configuration and the schema of
the lane record, and no code that judges, writes or remembers. It writes nothing. Memory is about 100 bytes for each
record, so millions of records fit.

What it cannot know: the limits of the past. It judges with today's settings and schemas, with the reasons that today's
codec gives, and with the most bytes that the topics take today.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.observe.audit.claims import Claims
from pipeline.observe.audit.judge import judge
from pipeline.observe.audit.result import AuditResult
from pipeline.observe.audit.topics import KafkaTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pipeline.observe.audit.records import Expected, Progress
    from pipeline.settings import Settings

__all__ = ["AuditResult", "audit", "ranges"]

PATIENCE_SECONDS = 5.0


def audit(
    settings: Settings,
    expected_outputs: Callable[[], Iterable[Expected]],
    *,
    start_offsets: Mapping[tuple[str, int], int] | None = None,
    patience: float = PATIENCE_SECONDS,
    progress: Progress = lambda _stage, _records: None,
) -> AuditResult:
    """Audit an app that is not running.

    `expected_outputs` yields (source partition, offset, outputs or the reason why there are none) of at least every
    fresh record in `ranges`, in any order. `start_offsets` says where this app's part of an output partition begins, by
    (topic, partition); the beginning if not given. Transactions that are still open get `patience` seconds to end.
    """
    topics = KafkaTopics(settings, start_offsets=start_offsets, patience=patience)
    return judge(settings, topics, expected_outputs, progress)


def ranges(settings: Settings) -> dict[int, tuple[int, int]]:
    """Return the source offsets (first, next) that each lane claims to have settled: what an audit is about."""
    topics = KafkaTopics(settings, patience=0.0)
    lanes = sorted(Claims(settings, topics).newest.items())
    return {partition: (lane.start_offset + topics.gone(lane), lane.next_offset) for partition, lane in lanes}
