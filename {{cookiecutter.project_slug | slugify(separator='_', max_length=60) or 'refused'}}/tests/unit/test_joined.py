"""Joined batches: every row as it came, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.lanes import joined as module
from pipeline.lanes.joined import joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

OUTPUTS = pa.list_(pa.struct([("topic", pa.string()), ("headers", pa.list_(pa.struct([("key", pa.string())])))]))
ROWS = [[], [{"topic": "a", "headers": None}], None, [{"topic": "b", "headers": [{"key": "c"}]}, None]]


def test_rows_stay_as_they_are_in_order() -> None:
    batches = [pa.record_batch([pa.array([row], OUTPUTS)], names=["outputs"]) for row in ROWS]
    [found] = joined(batches)
    assert found.column(0).to_pylist() == ROWS


def test_a_full_batch_is_handed_on_before_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOINED_ROWS", 2)
    batches = [pa.record_batch([pa.array([number])], names=["number"]) for number in range(5)]
    assert [found.column(0).to_pylist() for found in joined(batches)] == [[0, 1], [2, 3], [4]]


def test_the_time_before_the_first_batch_hands_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow() -> Iterator[pa.RecordBatch]:
        for number, seconds in enumerate((100.0, 0.0, 1.0, 50.0, 0.1)):
            now[0] += seconds
            yield pa.record_batch([pa.array([number])], names=["number"])

    assert [found.column(0).to_pylist() for found in joined(slow())] == [[0, 1, 2], [3, 4]]


def test_a_slice_keeps_its_place() -> None:
    batch = pa.record_batch([pa.array([[], [], *ROWS], OUTPUTS)], names=["outputs"])
    [found] = joined([batch.slice(0, 1), batch.slice(1, 3)])
    assert found.column(0).to_pylist() == [[], [], *ROWS[:2]]
