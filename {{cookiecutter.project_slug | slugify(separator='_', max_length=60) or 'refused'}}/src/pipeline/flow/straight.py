"""The lane writer's tasks straight over the rows of a stream's batch, without a plan of their own.

To describe `mapInArrow` over the batch, to have that planned, and to collect its rows takes as long as a small batch
spends in its lanes; and rows that cross by way of a plan are copied once more. What such a plan runs in the end is made
of a few parts of Spark's, which are put together here. They are no API: where a version of Spark has others, a batch is
described as ever.

Guarantee: the same tasks over the same rows, by the same workers; each gives one result.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, UnknownException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.serializers import CloudPickleSerializer
from pyspark.util import PythonEvalType

from pipeline.flow.crossing import ROWS, map_pieces, telling
from pipeline.flow.report_rows import REPORT_SCHEMA
from pipeline.flow.source import frame_over
from pipeline.lanes.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from pipeline.flow.crossing import Body

# What comes of parts that another version has not; a class that is not there is a package to py4j.
OTHER_VERSION = (Py4JError, PySparkException, TypeError)
# Spark knows a function by a number, for its profiler. One beyond 32 bits: Java would get any other as another type.
NUMBER = 2**32
# How Spark lays a row out: in words, two of them before the first value; the second holds its place and its length.
WORD_BYTES = 8
HEAD_BYTES = 2 * WORD_BYTES
LENGTH_BITS = 32
# As what Java tells the failure of something that was waited for; the failure itself is its cause.
WRAPPED = "ExecutionException"


class Straight:
    """How the batches of one stream go; what stays the same from one to the next is made with the first."""

    def __init__(self) -> None:
        """Nothing is known before the first batch."""
        self._parts: _Parts | None = None
        self._other = False  # this version of Spark has other parts

    def collected(
        self, batch: DataFrame, rdd: Any, body: Body, settings: Mapping[str, str], by: Path
    ) -> list[bytes] | None:
        """What the tasks over a batch's rows give, handed over by a file; nothing, and none has run, where it cannot.

        `rdd` has the rows, in as many partitions as there are to be tasks.
        """
        if self._parts is None and not self._other:
            try:
                self._parts = _Parts(batch, rdd)
            except OTHER_VERSION:
                self._other = True
        return None if self._parts is None else self._parts.collected(rdd, body, settings, by)


class _Parts:
    """What the tasks of a stream are made of."""

    def __init__(self, batch: DataFrame, rdd: Any) -> None:
        """Take them off a plan for rows like these, and put them together once; raises what Java does without them."""
        self._spark = batch.sparkSession
        self._context: SparkContext = self._spark.sparkContext
        jvm: Any = self._context._jvm  # noqa: SLF001  none of this has a Python face
        described = map_pieces(frame_over(rdd, batch), _as_they_are, REPORT_SCHEMA, COLUMNS)
        plan = described._jdf.queryExecution().executedPlan()  # noqa: SLF001
        function = plan.func().func()
        self._surroundings = (
            function.envVars(),
            function.pythonIncludes(),
            function.pythonExec(),
            function.pythonVer(),
            function.broadcastVars(),
            function.accumulator(),
        )
        self._function_of = jvm.org.apache.spark.api.python.SimplePythonFunction
        self._chained = jvm.org.apache.spark.api.python.ChainedPythonFunctions
        self._pair = jvm.scala.Tuple2
        self._one = jvm.java.util.Collections.singletonList
        self._listed = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._tasks_of = jvm.org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory
        self._columns = plan.output(), batch._jdf.schema()  # noqa: SLF001  of the results, of the rows
        conf = self._spark._jsparkSession.sessionState().conf()  # noqa: SLF001
        artifacts = jvm.org.apache.spark.JobArtifactSet.getCurrentJobArtifactState()
        self._told = (
            PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
            conf.sessionLocalTimeZone(),
            conf.arrowUseLargeVarTypes(),
            jvm.org.apache.spark.sql.execution.python.ArrowPythonRunner.getPythonRunnerConfMap(conf),
            plan.pythonMetrics(),
            jvm.scala.Option.apply(artifacts.get().uuid() if artifacts.isDefined() else None),
        )
        self._kind = rdd.elementClassTag()
        self._file_of = jvm.java.io.FileOutputStream
        self._over(rdd, _as_they_are, 1)

    def collected(self, rdd: Any, body: Body, settings: Mapping[str, str], by: Path) -> list[bytes]:
        """What the tasks give: one row each, since Spark hands the next one over in the same place."""
        # The stream has told its tasks all the rest of what its session has set.
        with telling(self._context.setLocalProperty, settings):
            rows = _collected(self._over(rdd, body, int(settings[ROWS])))
        try:
            return self._read(rows, by)
        except (Py4JError, OSError, ValueError):  # on a full disk, say: one by one, since the lanes have committed
            return [bytes(row.getBinary(0)) for row in rows]

    def _read(self, rows: list[Any], by: Path) -> list[bytes]:
        """By a file: py4j takes 40 ms for any answer of more than 8 KB, until the system acknowledges its beginning."""
        out = self._file_of(str(by))
        try:
            for row in rows:
                row.writeToStream(out, None)
        finally:
            out.close()
        values = values_of(by.read_bytes())
        if len(values) != len(rows):
            msg = f"{len(values)} values of {len(rows)} rows"
            raise ValueError(msg)
        return values

    def _over(self, rdd: Any, body: Body, rows: int) -> Any:
        """The tasks. This version of Spark does not read `rows` here, but of what its tasks are told."""
        functions = self._seq(self._pair(self._chained(self._seq(self._function(body))), NUMBER))
        made, taken = self._columns
        return rdd.mapPartitionsWithEvaluator(self._tasks_of(made, functions, taken, rows, *self._told), self._kind)

    def _function(self, body: Body) -> Any:
        command = CloudPickleSerializer().dumps((body, REPORT_SCHEMA))
        return self._function_of(bytearray(command), *self._surroundings)

    def _seq(self, item: Any) -> Any:
        return self._listed(self._one(item))


def _collected(rdd: Any) -> list[Any]:
    """The rows, by the other way to ask for them: `collect` looks through the code of two large classes, for 5 ms."""
    try:
        found = rdd.toJavaRDD().collectAsync().get()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != WRAPPED:
            raise
        cause = error.java_exception.getCause()
        told = convert_exception(cause)
        raise (Py4JJavaError(error.errmsg, cause) if isinstance(told, UnknownException) else told) from None
    return [found.get(place) for place in range(found.size())]


def _as_they_are(batches: Iterator[Any]) -> Iterator[Any]:
    """In place of the writer, to see whether a function can be run."""
    return batches


def values_of(data: bytes) -> list[bytes]:
    """The values of Spark's rows, one each; a ValueError if that is not how they are laid out."""
    values, at = [], 0
    while at < len(data):
        begin = at + HEAD_BYTES
        nulls, second = data[at : at + WORD_BYTES], int.from_bytes(data[at + WORD_BYTES : begin], sys.byteorder)
        place, length = second >> LENGTH_BITS, second & ((1 << LENGTH_BITS) - 1)
        if any(nulls) or place != HEAD_BYTES or begin + length > len(data):
            msg = f"no row of one value at byte {at}"
            raise ValueError(msg)
        values.append(data[begin : begin + length])
        at = begin + -(-length // WORD_BYTES) * WORD_BYTES
    return values
