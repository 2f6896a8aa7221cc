"""Replay: a stretch of the log once more, into other topics, under another app id. `pipeline replay` calls it.

Guarantee: exactly once, as any job, and nothing of the live app is touched: lanes, outputs, dead letters, consumer
group and transactional ids are the replay's own. Its lanes say how far it is, so it needs no checkpoint, and goes on
after a kill where it was. It ends by itself: no record at or beyond its end is read.

(`pipeline dead-letters replay` is another thing: it sends single dead letters back to the source.)
"""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError, Replaced, Stopped
from pipeline.faults import fault_point
from pipeline.flow.batch import Lanes, write_batch
from pipeline.flow.codec import codec_of
from pipeline.flow.failures import Failure, failure_of
from pipeline.flow.path import next_offsets
from pipeline.flow.preflight import check_log, check_topics
from pipeline.flow.reference import Reference
from pipeline.flow.session import check_session, session, stop_spark
from pipeline.flow.shutdown import end_lanes
from pipeline.flow.source import as_rows, batch
from pipeline.flow.transform import transform
from pipeline.flow.usercode import rows_of, transform_checked
from pipeline.lanes.record import decode
from pipeline.lanes.takeover import take_over
from pipeline.observe.progress import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.flow.ranges import Range
    from pipeline.flow.stretch import Stretch
    from pipeline.observe.progress import Observer


@dataclass
class Replay:
    """One stretch of the log; `stop` may be set by a signal handler at any time."""

    stretch: Stretch
    observer: Observer
    transform: Callable[[DataFrame], DataFrame] = transform

    def __post_init__(self) -> None:
        """Nothing is connected before `run`."""
        self.settings = self.stretch.settings
        self.stop = threading.Event()
        self._stop_file: Path | None = None

    def end(self) -> None:
        """Stop after the chunks in hand; for a signal handler."""
        self.stop.set()
        if self._stop_file is not None:
            self._stop_file.touch()

    def run(self) -> int:
        """Process up to the end of the stretch, or until told to stop; returns the offsets that are left."""
        codec = codec_of(self.stretch.live)  # schemas are those of the topics that the transform names
        spark = session(self.settings)
        try:
            check_session(spark)
            reference = Reference(self.settings, spark)
            rows = rows_of(reference.bound(self.transform), codec)
            transform_checked(spark, rows, codec)
            checked = check_topics(self.settings)
            run, recalled = take_over(self.settings, checked.source)
            self.stretch.check_start({number: decode(lane.value).start_offset for number, lane in recalled.items()})
            check_log(self.settings, next_offsets(recalled))
            self.observer.on_start(run, recalled, self.settings.delivery)
            with tempfile.TemporaryDirectory(prefix="pipeline-", ignore_cleanup_errors=True) as scratch:
                self._stop_file = stop_file = Path(scratch, "stop")
                task = checked.task(self.settings, run, codec, stop_file)
                limits = {**checked.topic_bytes, **self._limits(checked.topic_bytes)}
                task = replace(task, topic_bytes=limits, into=self.stretch.into)
                failure, foreign = None, False
                try:
                    lanes = Lanes(task, recalled)
                    if left := reference.take_over(run, next_offsets(recalled)):
                        lanes = self._write(spark, rows, lanes, left, Batch(-1))
                    return self._batches(spark, rows, lanes, reference)
                except Exception as error:
                    foreign = not isinstance(error, PipelineError)
                    failure = failure_of(Failure.of(error), self.settings, checked, next_offsets(recalled))
                    raise failure from error
                finally:
                    self._stop_file = None
                    stop_file.touch()
                    if not isinstance(failure, Replaced):  # a newer run owns the lanes then
                        end_lanes(self.settings, len(recalled), workers_may_run=foreign, failed=True)
        finally:
            stop_spark(spark)

    def _batches(
        self,
        spark: SparkSession,
        rows: Callable[[DataFrame], DataFrame],
        lanes: Lanes,
        reference: Reference,
    ) -> int:
        total = self.stretch.left({})
        number = 0
        while True:
            left = self.stretch.left(next_offsets(lanes.recalled))
            self.observer.say(f"replayed={total - left} of={total} offsets")
            if not left or self.stop.is_set():
                return left
            fault_point("before batch")
            progress = Batch(number)
            ranges = self.stretch.next_ranges(next_offsets(lanes.recalled))
            lanes = self._write(spark, rows, lanes, ranges, progress, reference.before_batch)
            number += 1
            self.stop.wait(max(self.settings.spark.trigger_seconds - progress.seconds, 0.0))

    def _write(  # noqa: PLR0913, PLR0917  a batch, and what is told of it
        self,
        spark: SparkSession,
        rows: Callable[[DataFrame], DataFrame],
        lanes: Lanes,
        ranges: Mapping[int, tuple[int, int]],
        progress: Batch,
        before: Callable[[list[Range]], None] = lambda _: None,
    ) -> Lanes:
        reports = write_batch(as_rows(batch(spark, self.settings, ranges)), rows, lanes, before)
        self.observer.on_batch(progress.done(reports))
        for report in reports:
            try:
                report.raise_stop()
            except Stopped:
                self.stop.set()
        return lanes.after(reports)

    def _limits(self, topic_bytes: Mapping[str, int]) -> dict[str, int]:
        """What a record may have under the name that the transform gives its topic."""
        return {old: topic_bytes[new] for old, new in self.stretch.into.items()}
