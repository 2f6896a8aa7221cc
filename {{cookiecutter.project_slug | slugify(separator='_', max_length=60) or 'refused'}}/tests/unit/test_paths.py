"""What tells the two paths of a job apart before Spark is asked anything: columns, remedies, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.reference import settings_for

from pipeline.errors import BadSettings, SafeStop
from pipeline.flow import preflight
from pipeline.flow.checkpoint import damaged, unwritable
from pipeline.flow.path import check_columns
from pipeline.flow.stretch import stretch_of
from pipeline.settings import build

if TYPE_CHECKING:
    from pipeline.settings import Settings

COLUMNS = {"id": "string", "at": "timestamp", "amount": "double", "_key": "binary", "_source": "struct<>"}


def shuffled(**sections: Any) -> Settings:
    """Return settings of the shuffled path."""
    return build({**settings_for().model_dump(), "spark": {"checkpoint": "x"}, **sections})


def windows(**given: Any) -> Settings:
    """Return settings of windows."""
    return shuffled(flow={"path": "windows"}, windows={"late": "drop", **given})


def dedup(**given: Any) -> Settings:
    """Return settings of dedup by any id."""
    return shuffled(dedup={"strategy": "window", **given})


def test_columns_that_are_there_are_taken() -> None:
    check_columns(windows(time="at"), COLUMNS)
    check_columns(dedup(id_column="id"), COLUMNS)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (windows(time="when"), "windows.time = 'when': the events have no such column; they have id, at, amount"),
        (windows(time="amount"), "windows.time = 'amount': the column is a double; it must be a timestamp"),
        (dedup(id_column="uuid"), "dedup.id_column = 'uuid': the events have no such column; they have id, at, amount"),
    ],
)
def test_a_column_that_cannot_serve_is_refused_with_those_that_are_there(settings: Settings, line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        check_columns(settings, COLUMNS)
    assert str(refused.value).startswith(line)


def test_nobody_is_told_to_delete_a_checkpoint_that_holds_state() -> None:
    assert "delete the checkpoint folder (x) and start again" in damaged("x", "metadata", "cut", holds_state=False)
    held = damaged("x", "metadata", "cut", holds_state=True)
    assert "delete" not in held
    assert "restore it from a copy" in held
    assert "name another folder" in unwritable("x", "full", holds_state=False)
    assert "another folder" not in unwritable("x", "full", holds_state=True)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [(settings_for(), "run `pipeline provision --accept-loss`"), (dedup(), "another app.id and checkpoint")],
)
def test_a_loss_can_be_accepted_on_the_lanes_path_alone(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, remedy: str
) -> None:
    log = SimpleNamespace(offsets=lambda *_, **__: {0: 5})
    monkeypatch.setattr(preflight, "Topics", lambda _: log)
    with pytest.raises(SafeStop, match=remedy):
        preflight.check_log(settings, {0: 3})


def test_a_stretch_of_the_log_is_not_replayed_on_the_shuffled_path() -> None:
    with pytest.raises(BadSettings, match="replay is for the lanes path"):
        stretch_of(dedup(), "earliest", "latest", ["other"])
