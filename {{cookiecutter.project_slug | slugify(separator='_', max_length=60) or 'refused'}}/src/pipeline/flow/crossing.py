"""How the rows of a batch cross to Python: how many at a time, and by which code Java makes them.

Guarantee: what is written does not depend on it. Rows cross in small pieces wherever they were large lately, and
wherever nothing is known of them yet; only a batch in which large rows come behind small ones has large pieces of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, pandas_udf
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pipeline.flow.ranges import Range

    Body = Callable[[Iterator[Any]], Iterator[Any]]  # what a task does with its pieces

# Rows in a piece. A record may have a megabyte: few, until it is known that they have not. More than many gain nothing.
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
FEW_ROWS, MANY_ROWS = 100, 400
PIECE_BYTES = 16 * 1024 * 1024
# For each partition that it reads, Spark writes a program which makes rows of records: 2 ms, and more for Java's
# compilers. For fewer offsets than this it takes less time to do without.
CODE = "spark.sql.codegen.factoryMode"
WRITTEN, INTERPRETED = "FALLBACK", "NO_CODEGEN"
PAYS_OFF = 1_000


def as_it_comes() -> dict[str, str]:
    """What Spark is told for all that is not told otherwise."""
    return {ROWS: str(FEW_ROWS), CODE: WRITTEN}


def rows_in_a_piece(row_bytes: int) -> int:
    """For rows that had so many bytes lately; 0 if nothing is known of them."""
    return max(FEW_ROWS, min(MANY_ROWS, PIECE_BYTES // row_bytes)) if row_bytes else FEW_ROWS


def told_for(ranges: Iterable[Range], row_bytes: int) -> dict[str, str]:
    """What Spark is told for a batch of these ranges."""
    offsets = [until - first for _, first, until in ranges]
    code = INTERPRETED if sum(offsets) < PAYS_OFF * len(offsets) else WRITTEN
    return {ROWS: str(rows_in_a_piece(row_bytes)), CODE: code}


def told(spark: SparkSession, settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """Tell Spark, for what it plans and runs meanwhile."""
    return telling(spark.conf.set, settings)


@contextmanager
def telling(tell: Callable[[str, str], None], settings: Mapping[str, str]) -> Iterator[None]:
    """Tell what is not as it comes, and take it back."""
    usual = as_it_comes()
    changed = {name: value for name, value in settings.items() if value != usual[name]}
    for name, value in changed.items():
        tell(name, value)
    try:
        yield
    finally:
        for name in changed:
            tell(name, usual[name])


def map_pieces(frame: DataFrame, function: Body, schema: StructType, columns: Iterable[str]) -> DataFrame:
    """As `mapInArrow`, which asks Java for the frame's columns, for each of them, and for the meaning of a schema."""
    made = pandas_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    used = made(*map(col, columns))
    return DataFrame(frame._jdf.mapInArrow(used._jc, False, None), frame.sparkSession)  # noqa: FBT003, SLF001


class Weighed:
    """Pieces on their way, and what a row of them takes: the most that it does in any piece, in bytes."""

    def __init__(self, batches: Iterable[Any]) -> None:
        """Nothing came yet."""
        self._batches = batches
        self.row_bytes = 0

    def __iter__(self) -> Iterator[Any]:
        """The pieces as they come."""
        for batch in self._batches:
            if batch.num_rows:
                # Never `nbytes`: it reads the offsets of lists without values, which Java leaves out.
                self.row_bytes = max(self.row_bytes, batch.get_total_buffer_size() // batch.num_rows)
            yield batch
