"""The end of a task's input: told by what Spark sends behind it; a stream that breaks off is an error at any place."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths
from pyspark.sql.pandas.serializers import ArrowStreamSerializer, ArrowStreamUDFSerializer

from pipeline.flow.whole import BrokenOff

ROWS = pa.record_batch([pa.array([{"number": number} for number in range(3)])], names=["_0"])
MARK_BYTES = 8
END = struct.pack("!i", SpecialLengths.END_OF_STREAM)


def sent(batches: int, *, ended: bool) -> bytes:
    """Return what Spark sends for so many batches, with or without Arrow's last mark."""
    sink = io.BytesIO()
    with pa.RecordBatchStreamWriter(sink, ROWS.schema) as writer:
        for _ in range(batches):
            writer.write_batch(ROWS)
    return sink.getvalue() if ended else sink.getvalue()[:-MARK_BYTES]


def read(data: bytes) -> int:
    """Return how many rows a task gets."""
    batches = ArrowStreamUDFSerializer().load_stream(io.BufferedReader(io.BytesIO(data)))
    return sum(batch.num_rows for [batch] in batches)


def test_a_whole_input_is_read_to_its_end_and_what_follows_is_left_for_spark() -> None:
    assert read(sent(2, ended=True) + END) == 6
    stream = io.BufferedReader(io.BytesIO(sent(1, ended=True) + END))
    assert len(list(ArrowStreamSerializer().load_stream(stream))) == 1
    assert stream.read() == END


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_an_input_that_breaks_off_behind_a_whole_batch_is_an_error(batches: int) -> None:
    assert sum(1 for _ in pa.ipc.open_stream(sent(batches, ended=False))) == batches  # Arrow takes it for the end
    with pytest.raises(BrokenOff):
        read(sent(batches, ended=False))


def test_an_input_that_breaks_off_before_spark_has_said_that_it_is_over_is_an_error() -> None:
    with pytest.raises(BrokenOff):
        read(sent(2, ended=True))
