"""The user's function from outside: how it is called, and what it must return.

Guarantee: a mistake in it is one line that names the user's own file and line, never a traceback through Spark.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.corrections import correcting
from pipeline.flow.failures import place
from pipeline.flow.outputs import FIELDS_TYPE, OUTPUTS_TYPE, RECORDS, encoded_as
from pipeline.flow.plan import DESCRIBES, check_plan
from pipeline.flow.sessions import check_sessions
from pipeline.flow.source import KEY, SOURCE, records, source_field
from pipeline.lanes.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pipeline.flow.codec import Codec

# What Spark's Kafka source delivers; for the check of the user's function before anything is read.
RAW_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


def apply(transform: Callable[[DataFrame], DataFrame], events: DataFrame, codec: Codec | None = None) -> DataFrame:
    """Call the user's function and hold it to its contract; the codec says in which format its records are written."""
    try:
        with encoded_as("json" if codec is None else codec.settings.output):
            return flattened(transform(events), events, codec)
    except PipelineError:
        raise
    except Exception as error:
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        text = str(error).strip().partition("\n")[0]
        msg = f"transform: {type(error).__name__}: {text}{place(frames)}"
        raise PipelineError(msg) from error


def rows_of(transform: Callable[[DataFrame], DataFrame], codec: Codec) -> Callable[[DataFrame], DataFrame]:
    """From raw records to the rows of the lane writer: codec and the user's function."""
    return lambda raw: apply(transform, codec.decode(records(raw)), codec)


def transform_checked(spark: SparkSession, rows: Callable[[DataFrame], DataFrame], codec: Codec) -> bool:
    """Refuse a function that does not keep rows before a single one is read.

    Returns whether it is made of events alone, without chance. Then it means the same in each batch, and may be
    described once.
    """
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), RAW_SCHEMA)
    made = rows(nothing)
    check_plan(made, nothing, stages=codec.stages)
    plan = made._jdf.queryExecution().analyzed()  # noqa: SLF001  the plan has no Python face
    return bool(plan.collectLeaves().size() == 1 and plan.subqueriesAll().isEmpty() and plan.deterministic())


def windows_checked(spark: SparkSession, function: Callable[[DataFrame], DataFrame], codec: Codec) -> None:
    """Refuse windows that break their contract before a single event is read; as first results, and as corrections."""
    events = no_events(spark, codec).drop(KEY, SOURCE)
    for corrects in (False, True):
        check_sessions(results(function, events, codec, corrects=corrects))


def no_events(spark: SparkSession, codec: Codec) -> DataFrame:
    """Events as the user's function gets them, without any."""
    return codec.decode(records(spark.createDataFrame(spark.sparkContext.emptyRDD(), RAW_SCHEMA)))


def results(
    function: Callable[[DataFrame], DataFrame], events: DataFrame, codec: Codec, *, corrects: bool | None = None
) -> DataFrame:
    """Call the user's windows, and hold them to their contract: `outputs`, and the `time` that orders them.

    `corrects` says whether the events are late ones, whose results are added to earlier ones. If nobody says, it is
    told from the events: in a job first results come from the stream alone, and plain events are a batch's late ones.
    """
    try:
        with encoded_as(codec.settings.output), correcting(not events.isStreaming if corrects is None else corrects):
            result = function(events)
            return _windowed(result, codec)
    except PipelineError:
        raise
    except Exception as error:
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        text = str(error).strip().partition("\n")[0]
        msg = f"windows: {type(error).__name__}: {text}{place(frames)}"
        raise PipelineError(msg) from error


def _windowed(result: DataFrame, codec: Codec) -> DataFrame:
    if not isinstance(result, DataFrame):
        msg = f"windows: it returned {type(result).__name__} instead of a DataFrame; is a `return` missing?"
        raise SafeStop(msg)
    missing = {"outputs", "time"} - set(result.columns)
    if missing:
        msg = (
            f"windows: the column {' and '.join(sorted(missing))} is missing from its result; set `outputs` with "
            "emit(...), and `time` to the moment by which the results of a key are in order"
        )
        raise SafeStop(msg)
    _check_outputs(result, codec, "windows")
    if _type(result, "time") != "timestamp":
        msg = f"windows: the column time is {_type(result, 'time')}; make it a timestamp, for example the window's end"
        raise SafeStop(msg)
    return result.select("outputs", "time")


def flattened(result: DataFrame, events: DataFrame, codec: Codec | None = None) -> DataFrame:
    """The contract at the exit of the user's function: `_source` as it was, and `outputs`."""
    if not isinstance(result, DataFrame):
        msg = f"transform: it returned {type(result).__name__} instead of a DataFrame; is a `return` missing?"
        raise SafeStop(msg)
    missing = {SOURCE, "outputs"} - set(result.columns)
    if missing:
        msg = (
            f"transform: the column {' and '.join(sorted(missing))} is missing from its result; "
            f"use withColumn, which keeps all columns, and set `outputs` with emit(...)"
        )
        raise SafeStop(msg)
    if _type(result, SOURCE) != _type(events, SOURCE) or _is_replaced(result, events):
        msg = f"transform: the column {SOURCE} was changed; it is the lane's, leave it as it is"
        raise SafeStop(msg)
    _check_outputs(result, codec, "transform")
    return result.select(*(name if name == "outputs" else source_field(name) for name in COLUMNS))


def _check_outputs(result: DataFrame, codec: Codec | None, name: str) -> None:
    if _type(result, "outputs").startswith(f"array<struct<{FIELDS_TYPE},{RECORDS}:") and codec is not None:
        for field in result.schema["outputs"].dataType.elementType[RECORDS].dataType:
            codec.check_output(field.name.partition(":")[2], field.dataType)
    elif _type(result, "outputs") != OUTPUTS_TYPE:
        msg = f"{name}: the column outputs is {_type(result, 'outputs')}; make it with emit(...): {OUTPUTS_TYPE}"
        raise SafeStop(msg)


def _is_replaced(result: DataFrame, events: DataFrame) -> bool:
    """Whether `_source` is another column of the same name, though the rows are those of the events.

    What does not keep rows is for the check of the plan to name.
    """
    plan, own = (frame._jdf.queryExecution().analyzed() for frame in (result, events))  # noqa: SLF001  no Python face
    if _ids(plan, SOURCE) == _ids(own, SOURCE):
        return False
    while not plan.children().isEmpty():
        if str(plan.nodeName()) not in {*DESCRIBES, "Join"}:
            return False
        plan = plan.children().head()
    return _ids(plan) == _ids(own.collectLeaves().head())


def _ids(plan: Any, name: str = "") -> list[str]:
    """What Spark knows columns by, whatever their names: all of a plan, or those of one name."""
    output = plan.output()
    found = (output.apply(place) for place in range(output.size()))
    return [str(one.exprId().toString()) for one in found if name in {"", str(one.name())}]


def _type(frame: DataFrame, column: str) -> str:
    return str(frame.schema[column].dataType.simpleString())
