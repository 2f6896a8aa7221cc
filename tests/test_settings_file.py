"""The shipped pipeline.toml holds every setting of the code, with a comment, and is valid for every set of answers."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from answer_sets import SUPPORTED
from conftest import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from conftest import Bake

# What has no default in the code, or is said out loud in the file.
CHOSEN = {"app.id", "source.bootstrap", "source.topic", "output.topics", "output.dead_letter_topic", "metrics.port"}
CHOSEN |= {"codec.input", "codec.output", "windows.late_topic"}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type[BaseModel]:
    """Import the settings of the project in place."""
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    found: type[BaseModel] = importlib.import_module("pipeline.settings").Settings
    return found


def test_the_file_holds_every_setting_and_no_other(model: type[BaseModel]) -> None:
    """Keys in the file against fields of the model."""
    assert {name: set(section) for name, section in values().items()} == {
        name: set(fields_of(field.annotation)) for name, field in model.model_fields.items()
    }


def test_the_values_are_the_defaults_of_the_code(model: type[BaseModel]) -> None:
    """So that a missing key and an untouched one mean the same."""
    for name, section in values().items():
        fields = fields_of(model.model_fields[name].annotation)
        for key, value in section.items():
            if f"{name}.{key}" not in CHOSEN:
                assert (fields[key].default, type(fields[key].default)) == (value, type(value)), f"{name}.{key}"


def test_every_setting_has_a_comment_above_it() -> None:
    """Settings that belong together may share one."""
    lines = (PROJECT / "pipeline.toml").read_text(encoding="utf-8").split("\n")

    for above, line in pairwise(lines):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("#") or "=" in above, line


@pytest.mark.parametrize("case", SUPPORTED)
def test_the_project_itself_accepts_the_file(case: str, bake: Bake, tmp_path: Path) -> None:
    """With the project's own reader, in its own process."""
    project = bake(tmp_path, SUPPORTED[case])
    code = "from pathlib import Path; from pipeline.settings import load; print(load(Path('pipeline.toml'), {}).app.id)"

    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.stdout, run.stderr) == (f"{project.name}\n", "")


def values() -> dict[str, dict[str, Any]]:
    """Read the file before it is rendered: it is valid then as well."""
    return tomllib.loads((PROJECT / "pipeline.toml").read_text(encoding="utf-8"))


def fields_of(section: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic does not say more
    """List the fields of a section."""
    return dict(section.model_fields)
