"""Lane records in files: taken as they were put, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lanes import settings_for

from pipeline.flow.batch import HAND_OVER_BYTES, Lanes
from pipeline.lanes.kept import Kept, keep, known
from pipeline.lanes.recall import Recalled
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
