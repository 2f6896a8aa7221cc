"""Reports on their way from a task to the driver: all of a task as one row of bytes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.lanes.report import LaneReport

REPORT_SCHEMA = StructType().add("reports", BinaryType())
REPORT_ARROW = pa.schema([("reports", pa.binary())])


def report_row(reports: Sequence[LaneReport]) -> pa.RecordBatch:
    """What a task gives."""
    column = pa.array([pickle.dumps(list(reports))], pa.binary())
    return pa.RecordBatch.from_arrays([column], schema=REPORT_ARROW)


def reports_in(packed: Iterable[bytes]) -> list[LaneReport]:
    """What all tasks gave."""
    # Of the job's own tasks, as PySpark itself sends rows: whoever could write to these could run code there anyway.
    return [report for reports in packed for report in pickle.loads(reports)]  # noqa: S301
