"""The whole flow on one page: Kafka to lanes to Kafka.

    take the lanes over     every earlier writer is fenced; the lane records say where to start
    source                  Spark reads the topic from there: committed records, one lane per partition
    codec                   values become columns
    transform               yours
    lanes                   fence, recall, skip, judge, write, report, in each task
    observe                 figures from the committed lane records, progress to a consumer group

Guarantee: Kafka alone says what was written. Spark's checkpoint is a hint that may be deleted, old, or shared. With
windows, or dedup of any id, the shuffled path stands between codec and lanes (`path.py`), and its state is in there.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from pipeline.acls import check as check_acls
from pipeline.acls import clearest
from pipeline.errors import Denied, PipelineError, Replaced, Stopped, Unreachable
from pipeline.faults import fault_point
from pipeline.flow.batch import Lanes
from pipeline.flow.checkpoint import location, noted_by
from pipeline.flow.codec import codec_of
from pipeline.flow.failures import Failure, failure_of
from pipeline.flow.going_on import GoingOn
from pipeline.flow.path import next_offsets, path_of, started
from pipeline.flow.preflight import PartitionsAdded, check_log, check_topics
from pipeline.flow.session import check_session, session, stop_spark
from pipeline.flow.shutdown import end_lanes, passed_on
from pipeline.lanes.provision import provision
from pipeline.lanes.takeover import take_over
from pipeline.observe.progress import Batch, Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from pipeline.flow.codec import Codec
    from pipeline.flow.path import Path as FlowPath
    from pipeline.flow.preflight import Checked
    from pipeline.lanes.report import LaneReport
    from pipeline.settings import Settings

# How often the driver looks whether it was told to stop, and whether the source topic is still the same.
WATCH_SECONDS = 0.2
LOOK_SECONDS = 5.0
# How long a batch may take to finish its chunks in hand before it is stopped in the middle of them. With all that
# follows, the end stays within the 30 s that supervisors usually grant.
GRACE_SECONDS = 12.0


@dataclass
class Job:
    """A run of the pipeline; `stop` may be set by a signal handler at any time."""

    settings: Settings
    observer: Observer
    until_caught_up: bool = False
    transform: Callable[[DataFrame], DataFrame] | None = None  # the user's file for the path, unless given

    def __post_init__(self) -> None:
        """Nothing is connected before `run`."""
        self.stop = threading.Event()
        self._failure: Failure | None = None
        self._in_batch = False

    def run(self) -> None:
        """Process the log until it is told to stop, replaced, or, if asked, caught up."""
        codec = codec_of(self.settings)
        with ExitStack() as exits:
            spark = session(self.settings)
            exits.callback(stop_spark, spark)
            check_session(spark)
            path = path_of(self.settings, spark, codec, self.transform)
            path.check()
            while True:
                try:
                    self._stream(path, codec)
                except PartitionsAdded:
                    if self.settings.source.new_partitions == "stop":
                        raise
                    provision(self.settings, self.observer.say)
                except Denied as error:
                    raise clearest(error, self.settings) from error
                except Stopped:  # in what an earlier run left; the next one takes it up again
                    break
                else:
                    break
        self.observer.say("stopped on request" if self.stop.is_set() else "caught up")

    def _stream(self, path: FlowPath, codec: Codec) -> None:
        """Take the lanes over and run the query until it ends."""
        self._failure = None
        checked = check_topics(self.settings)
        checked.check_lanes()
        run, recalled = take_over(self.settings, checked.source)
        check_log(self.settings, next_offsets(recalled))
        self.observer.on_start(run, recalled, self.settings.delivery)
        fault_point("before query")
        with tempfile.TemporaryDirectory(prefix="pipeline-", ignore_cleanup_errors=True) as scratch:
            folder = location(self.settings, scratch)
            path.check_folder(folder, recalled)
            stop_file = Path(scratch, "stop")
            task = checked.task(self.settings, run, codec, stop_file)
            self._lanes = Lanes(task, recalled)
            with passed_on(self.stop, stop_file):
                self._finish(path, run, checked)
            frame = path.frame(folder, self._lanes.recalled)
            writer = frame.writeStream.foreachBatch(self._on_batch(path, checked, stop_file))
            notes = noted_by(self.settings, until_caught_up=self.until_caught_up)
            query = started(writer.options(checkpointLocation=folder, **notes).trigger(**self._trigger()))
            try:
                self._wait(query, checked)
            finally:
                stop_file.touch()
                self._close(query)
            self._raise_failure(checked)

    def _finish(self, path: FlowPath, run: int, checked: Checked) -> None:
        """What an earlier run left of a batch that must be ended as it was begun."""
        progress = Batch(-1)
        try:
            reports = path.finish(run, self._lanes, self.observer.say)
        except Exception as error:
            self._failure = Failure.of(error)
            stopped = self._is_stopped_with_spark()
            if not self._failure.is_ours:  # any other failure may leave some tasks running
                self._end_lanes(workers_may_run=True, failed=not stopped)
            if stopped:
                msg = "stopped together with Spark"
                raise Stopped(msg) from error
            raise self._told(self._failure, checked) from error
        if reports:
            self._settle(progress, reports)

    def _settle(self, progress: Batch, reports: list[LaneReport]) -> None:
        """Take over what was committed, tell it, and only then stop if a task said so."""
        self._lanes = self._lanes.after(reports)
        self.observer.on_batch(progress.done(reports))
        for report in reports:
            report.raise_stop()

    def _trigger(self) -> dict[str, bool | str]:
        if self.until_caught_up:
            return {"availableNow": True}
        return {"processingTime": f"{self.settings.spark.trigger_seconds} seconds"}

    def _on_batch(self, path: FlowPath, checked: Checked, stop_file: Path) -> Callable[[DataFrame, int], None]:
        def on_batch(batch: DataFrame, batch_id: int) -> None:
            self._in_batch = True  # before the look at the stop file; `_close` looks the other way round
            try:
                if self.stop.is_set() or stop_file.exists():
                    msg = "stopped before the batch began"
                    raise Stopped(msg)  # noqa: TRY301  every way out of a batch is noted below
                fault_point("before batch")
                checked.watch_patiently(stop_file)
                progress = Batch(batch_id)
                reports = path.write(batch, batch_id, self._lanes)
                fault_point("after batch")
                if reports:  # nothing, if earlier sequels had all of it
                    self._settle(progress, reports)
                self._go_on(path, checked, stop_file, batch, batch_id)
            except BaseException as error:  # noqa: BLE001  noted here, and raised where the job is run
                self._failure = self._failure or Failure.of(error)
                # Spark looks through the text of what is raised here, and overflows its stack on a long one.
                msg = f"batch {batch_id} ended early"
                raise PipelineError(msg) from None
            finally:
                self._in_batch = False

        return on_batch

    def _go_on(self, path: FlowPath, checked: Checked, stop_file: Path, batch: DataFrame, batch_id: int) -> None:
        """The sequels of a batch; a run that ends, and one whose batches have their times, has none."""
        if self.until_caught_up or self.settings.spark.trigger_seconds or not path.has_sequels:
            return
        sequels = GoingOn(self.settings, path, checked, lambda: self.stop.is_set() or stop_file.exists())
        progress = Batch(batch_id)
        while reports := sequels.next(batch, self._lanes):
            fault_point("after batch")
            self._settle(progress, reports)
            progress = Batch(batch_id)

    def _wait(self, query: StreamingQuery, checked: Checked) -> None:
        """Until the query ends by itself, or the stop flag is up."""
        next_look = time.monotonic() + LOOK_SECONDS
        while not self.stop.is_set():
            try:
                if query.awaitTermination(WATCH_SECONDS):
                    return
            except (StreamingQueryException, Py4JError, ConnectionError) as error:
                self._failure = self._failure or Failure.of(error)
                return
            # A partition that was added brings no batch by itself: the query reads only those it was assigned.
            if time.monotonic() > next_look:
                with suppress(Unreachable):  # whether to go on without the cluster is for the batches to say
                    checked.watch()
                    if self._in_batch:
                        # A partition that is denied to a transaction only makes it wait, until its time-out: so ask.
                        check_acls(self.settings)
                next_look = time.monotonic() + LOOK_SECONDS

    def _close(self, query: StreamingQuery) -> None:
        """Let the tasks finish the chunks in hand, then end the query and whatever it left open."""
        deadline = time.monotonic() + GRACE_SECONDS
        while self._in_batch and time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS)
        # A report that says stop comes from a batch whose tasks are done; any other failure may leave some running.
        failure, stopped = self._failure, self._is_stopped_with_spark()
        workers_may_run = self._in_batch or (failure is not None and not failure.is_ours)
        with suppress(Py4JError, ConnectionError):  # not in time, or gone: the fence below shuts out what still runs
            query.stop()
        self._failure = None if stopped else failure  # what came of stopping it is no failure
        # A newer run owns the lanes then, and a fence would only disturb it.
        if failure is None or not isinstance(failure.error, Replaced):
            failed = self._failure is not None and not isinstance(self._failure.error, Stopped)
            self._end_lanes(workers_may_run=workers_may_run, failed=failed)

    def _is_stopped_with_spark(self) -> bool:
        """Whether whoever told the job to stop told Spark as well: then that is no failure."""
        return self.stop.is_set() and self._failure is not None and self._failure.is_lost

    def _end_lanes(self, *, workers_may_run: bool, failed: bool) -> None:
        end_lanes(self.settings, len(self._lanes.recalled), workers_may_run=workers_may_run, failed=failed)

    def _raise_failure(self, checked: Checked) -> None:
        if self._failure is not None and not isinstance(self._failure.error, Stopped):
            raise self._told(self._failure, checked) from self._failure.error

    def _told(self, failure: Failure, checked: Checked) -> PipelineError:
        return failure_of(failure, self.settings, checked, next_offsets(self._lanes.recalled))
