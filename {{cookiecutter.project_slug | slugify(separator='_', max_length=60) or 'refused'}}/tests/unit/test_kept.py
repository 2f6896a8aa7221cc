"""Lane records in files: taken as they were put, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.lanes import settings_for

from pipeline.flow import batch
from pipeline.flow.batch import Lanes, run_task
from pipeline.lanes.kept import HAND_OVER_BYTES, Kept, keep, known
from pipeline.lanes.recall import Recalled
from pipeline.lanes.report import LaneReport
from pipeline.lanes.task import LaneTask

RECALLED = Recalled(b"a lane record", 7)


def test_a_record_is_taken_as_it_was_put(tmp_path: Path) -> None:
    assert known(keep(tmp_path, 3, RECALLED)) == RECALLED


@pytest.mark.parametrize("content", [b"", b"a lane recorD", b"a lane record and more"])
def test_a_file_that_holds_anything_else_is_not_believed(tmp_path: Path, content: bytes) -> None:
    kept = keep(tmp_path, 3, RECALLED)
    assert kept is not None
    Path(kept.path).write_bytes(content)
    assert known(kept) is None


def test_a_file_of_another_machine_or_a_folder_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    assert known(Kept(str(tmp_path / "lane-3"), b"", 7)) is None
    assert keep(tmp_path / "gone", 3, RECALLED) is None


def test_only_small_records_travel_with_every_task(tmp_path: Path) -> None:
    task = LaneTask(settings_for("localhost:1", "source"), 1, (0, 0), stop_file=str(tmp_path / "stop"))
    small, large = Recalled(bytes(HAND_OVER_BYTES), 5), Recalled(bytes(HAND_OVER_BYTES + 1), 6)
    told = [given.recalled for given in Lanes(task, {0: small, 1: large}).tasks([(0, 0, 1), (1, 0, 1)])]
    assert told[0] is small
    assert isinstance(told[1], Kept)
    assert [known(one) for one in told] == [small, large]


def test_what_a_task_has_put_into_a_file_is_handed_over_as_it_is(tmp_path: Path) -> None:
    task = LaneTask(settings_for("localhost:1", "source"), 1, (0, 0), stop_file=str(tmp_path / "stop"))
    before, newer = Recalled(bytes(HAND_OVER_BYTES + 1), 5), Recalled(bytes(HAND_OVER_BYTES + 2), 7)
    kept = keep(tmp_path, 0, newer)
    lanes = Lanes(task, {0: before}).after([LaneReport(0, newer.value, newer.end, kept)])
    assert lanes.handed_over(0) is kept
    # Committed by a task that had no such folder: what an earlier one put there is not the lane's last record.
    last = Recalled(bytes(HAND_OVER_BYTES + 3), 9)
    told = lanes.after([LaneReport(0, last.value, last.end)]).handed_over(0)
    assert isinstance(told, Kept)
    assert known(told) == last


def test_what_was_completed_for_a_lane_takes_the_place_of_what_was_known_and_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = LaneTask(settings_for("localhost:1", "source"), 1, (0, 0), stop_file=str(tmp_path / "stop"))
    before = Recalled(bytes(HAND_OVER_BYTES + 1), 5, "app.7")
    after = Recalled(before.value, 6, "app.7")
    lanes = Lanes(task, {0: before, 1: before}, {0: keep(tmp_path, 0, before)})
    monkeypatch.setattr(
        batch, "settled", lambda *given: {0: after} if given[2:] == ({0: "app.0"}, task.stop_file) else {}
    )
    lanes.settle({0: "app.0"})
    assert lanes.recalled == {0: after, 1: before}
    told = lanes.handed_over(0)
    assert known(told) == after


@pytest.mark.parametrize(
    ("record", "is_kept"), [(bytes(HAND_OVER_BYTES + 1), True), (bytes(HAND_OVER_BYTES), False), (b"", False)]
)
def test_a_task_puts_a_large_record_that_it_has_committed_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bytes, *, is_kept: bool
) -> None:
    class Writer:
        """Has committed, or not, whatever it is given."""

        report = LaneReport(4, record, 11)

        def write(self, rows: Any) -> None:
            assert not list(rows)

    monkeypatch.setattr(batch, "writer_of", lambda _: Writer())
    settings = settings_for("localhost:1", "source")
    task = LaneTask(settings, 1, (0, 0), partition=4, first=0, until=1, stop_file=str(tmp_path / "stop"))
    report = run_task(task, iter(()))
    assert known(report.kept) == (Recalled(record, 11) if is_kept else None)
    assert [path.name for path in tmp_path.iterdir()] == ["lane-4"] * is_kept
