"""The two paths of a job, by setting: what Spark streams, and how a batch of it is written.

    lanes       row by row: progress is an offset, the checkpoint is a hint, and a transform keeps every row
    shuffled    windows and `window` dedup: progress is a token, and the checkpoint holds the state

Guarantee: a job takes one of them from its start to its end; what the other one needs is neither asked nor done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException

from pipeline.errors import BadSettings, PipelineError, SafeStop
from pipeline.flow.batch import write_batch, write_rows
from pipeline.flow.checkpoint import check_checkpoint
from pipeline.flow.plan import check_described
from pipeline.flow.planned import check_durable
from pipeline.flow.ranges import Given, rdd_of
from pipeline.flow.reference import Reference
from pipeline.flow.sequel import Sequels, asks_for_time
from pipeline.flow.shuffled import STATE, Shuffled
from pipeline.flow.source import as_rows, batch, stream
from pipeline.flow.straight import Straight
from pipeline.flow.transform import transform
from pipeline.flow.usercode import no_events, rows_of, transform_checked, windows_checked
from pipeline.flow.windows import windows
from pipeline.lanes.record import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from pipeline.flow.batch import Lanes
    from pipeline.flow.codec import Codec
    from pipeline.lanes.recall import Recalled
    from pipeline.lanes.report import LaneReport
    from pipeline.settings import Settings

    Function = Callable[[DataFrame], DataFrame]


class Path(Protocol):
    """What a job asks of its path, in this order."""

    def check(self) -> None:
        """Refuse a user's function that breaks its contract, before a single record is read."""
        ...

    def check_folder(self, folder: str, recalled: Mapping[int, Recalled]) -> None:
        """Refuse a checkpoint with which the lanes cannot go on."""
        ...

    def finish(self, run: int, lanes: Lanes, say: Callable[[str], None]) -> list[LaneReport]:
        """Write what an earlier run left of a batch, if it must be ended as it was begun."""
        ...

    def frame(self, folder: str, recalled: Mapping[int, Recalled]) -> DataFrame:
        """What Spark streams."""
        ...

    def write(self, batch: DataFrame, batch_id: int, lanes: Lanes) -> list[LaneReport]:
        """Write one batch; a report may hold a reason to stop."""
        ...

    @property
    def has_sequels(self) -> bool:
        """Whether batches of this stream may have some."""
        ...

    def write_more(
        self, batch: DataFrame, lanes: Lanes, first: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[LaneReport]:
        """Write what came behind that batch, from where the lanes are; nothing where that is for Spark's next one."""
        ...


def path_of(settings: Settings, spark: SparkSession, codec: Codec, given: Function | None = None) -> Path:
    """The path of the settings, with the user's own file for it unless a function is given."""
    if not settings.shuffled:
        return LanesPath(settings, spark, codec, given or transform)
    own = windows if settings.flow.path == "windows" else transform
    return ShuffledPath(settings, spark, codec, given or own)


class LanesPath:
    """Row by row."""

    def __init__(self, settings: Settings, spark: SparkSession, codec: Codec, function: Function) -> None:
        """Read the reference table, if there is one."""
        self._settings, self._spark, self._codec = settings, spark, codec
        self._reference = Reference(settings, spark)
        self._rows = rows_of(self._reference.bound(function), codec)
        # A function that reads tables is described in each batch, so that it sees them as they are then.
        self._described_once = False
        self._sequels: Sequels | None = None

    def check(self) -> None:
        """A transform keeps every row."""
        self._described_once = transform_checked(self._spark, self._rows, self._codec)

    def check_folder(self, folder: str, recalled: Mapping[int, Recalled]) -> None:
        """Never ahead of Kafka."""
        check_checkpoint(self._spark, folder, self._settings, next_offsets(recalled))

    def finish(self, run: int, lanes: Lanes, say: Callable[[str], None]) -> list[LaneReport]:
        """With the reference data that the batch was begun with."""
        left = self._reference.take_over(run, next_offsets(lanes.recalled))
        if not left:
            return []
        say("finishing a batch of an earlier run, with the reference data it was begun with")
        return write_batch(as_rows(batch(self._spark, self._settings, left)), self._rows, lanes)

    def frame(self, folder: str, recalled: Mapping[int, Recalled]) -> DataFrame:  # noqa: ARG002  one face for both
        """The log from the lanes' next offsets on."""
        self._straight, self._sequels = Straight(), None
        log = stream(self._spark, self._settings, next_offsets(recalled))
        if not self._described_once:
            return log
        try:
            rows = self._rows(log)
        except PipelineError:  # of a batch it can be described: that was done before
            self._described_once = False
            return log
        check_described(rows, stages=self._codec.stages)
        if not asks_for_time(rows):
            self._sequels = Sequels(
                self._spark, self._settings.source.topic, self._settings.most_offsets(len(recalled))
            )
        return rows

    def write(self, batch: DataFrame, batch_id: int, lanes: Lanes) -> list[LaneReport]:
        """Each range to its lane."""
        if not self._described_once:
            return write_batch(batch, self._rows, lanes, self._reference.before_batch)
        rows = None if self._sequels is None else self._sequels.begin(batch_id, next_offsets(lanes.recalled))
        return self._write(batch, Given(rdd_of(batch)) if rows is None else rows, lanes)

    @property
    def has_sequels(self) -> bool:
        """Where the function is described once, and does not ask for the time."""
        return self._sequels is not None

    def write_more(
        self, batch: DataFrame, lanes: Lanes, first: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[LaneReport]:
        """By the same plan, if it can be used again."""
        rows = None if self._sequels is None else self._sequels.rows(first, ends)
        return [] if rows is None else self._write(batch, rows, lanes)

    def _write(self, batch: DataFrame, rows: Given, lanes: Lanes) -> list[LaneReport]:
        """Rows that have been through codec and user's function in the stream."""
        return write_rows(batch, rows, lanes, self._reference.before_batch, self._straight)


class ShuffledPath:
    """Windows, or dedup of any id."""

    def __init__(self, settings: Settings, spark: SparkSession, codec: Codec, function: Function) -> None:
        """Nothing is read yet."""
        self._settings, self._spark, self._codec, self._function = settings, spark, codec, function

    def check(self) -> None:
        """Windows give results with a time; a transform behind dedup keeps every row, as on the other path."""
        check_columns(self._settings, dict(no_events(self._spark, self._codec).dtypes))
        if self._settings.flow.path == "windows":
            windows_checked(self._spark, self._function, self._codec)
        else:
            transform_checked(self._spark, rows_of(self._function, self._codec), self._codec)

    def check_folder(self, folder: str, recalled: Mapping[int, Recalled]) -> None:
        """The very one with which the lanes got as far as they are."""
        check_durable(self._spark, folder, recalled)

    def finish(self, run: int, lanes: Lanes, say: Callable[[str], None]) -> list[LaneReport]:  # noqa: ARG002
        """Nothing: Spark itself runs a batch again as it was planned."""
        return []

    def frame(self, folder: str, recalled: Mapping[int, Recalled]) -> DataFrame:
        """What Spark keeps state for; a lane may be further, the first batch begins where all lanes began."""
        for name, value in {**STATE, "spark.sql.shuffle.partitions": str(len(recalled))}.items():
            self._spark.conf.set(name, value)
        starts = {partition: decode(lane.value).start_offset for partition, lane in recalled.items()}
        self._shuffled = Shuffled(self._settings, self._codec, self._function, folder, starts, self._spark)
        return self._shuffled.query(stream(self._spark, self._settings, starts))

    def write(self, batch: DataFrame, batch_id: int, lanes: Lanes) -> list[LaneReport]:
        """Each result to the lane of its key."""
        return self._shuffled.write(batch, batch_id, lanes)

    @property
    def has_sequels(self) -> bool:
        """Never: Spark alone says what belongs to a batch."""
        return False

    def write_more(
        self,
        batch: DataFrame,  # noqa: ARG002
        lanes: Lanes,  # noqa: ARG002
        first: Mapping[int, int],  # noqa: ARG002
        ends: Mapping[int, int],  # noqa: ARG002
    ) -> list[LaneReport]:
        """Nothing, therefore."""
        return []


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Start the query; what Spark can do in a batch and not in a stream, it says only here."""
    try:
        return writer.start()
    except AnalysisException as error:
        why = str(error).strip().partition("\n")[0]
        msg = f"Spark cannot run this as a stream: {why}; change windows.py or transform.py"
        raise SafeStop(msg) from error


def check_columns(settings: Settings, types: Mapping[str, str]) -> None:
    """The columns that the settings name are there, and of a type that serves; `types` are those of the events."""
    name, key, wanted = settings.dedup.id_column, "dedup.id_column", ""
    if settings.flow.path == "windows":
        name, key, wanted = settings.windows.time, "windows.time", "timestamp"
    found = types.get(name)
    own = ", ".join(column for column in types if not column.startswith("_"))
    if found is None:
        msg = f"{key} = {name!r}: the events have no such column; they have {own}"
        raise BadSettings(msg)
    if wanted and found != wanted:
        msg = f"{key} = {name!r}: the column is a {found}; it must be a {wanted}, as of timestamp-millis in the schema"
        raise BadSettings(msg)


def next_offsets(recalled: Mapping[int, Recalled]) -> dict[int, int]:
    """Where each lane goes on."""
    return {partition: decode(lane.value, ledger=False).next_offset for partition, lane in recalled.items()}
