"""Reports on their way from a task to the driver: as rows of a frame, the lane record beside them as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.lanes.report import LaneReport

REPORT_SCHEMA = StructType().add("partition", IntegerType()).add("report", StringType()).add("record", BinaryType())
REPORT_ARROW = pa.schema([("partition", pa.int32()), ("report", pa.string()), ("record", pa.binary())])


def report_rows(reports: Sequence[LaneReport]) -> pa.RecordBatch:
    """One row for each."""
    columns = [
        [report.partition for report in reports],
        [report.as_text() for report in reports],
        [report.record for report in reports],
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, REPORT_ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=REPORT_ARROW)
