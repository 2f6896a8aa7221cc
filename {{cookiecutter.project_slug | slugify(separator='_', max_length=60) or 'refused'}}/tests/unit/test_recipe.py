"""By what results are made: which changes of code and settings count, and which do not."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.figures import settings_of as settings_with

from pipeline.flow.recipe import code_of, settings_of, sources
from pipeline.flow.windows import windows

if TYPE_CHECKING:
    from pathlib import Path

WINDOWS = {"flow": {"path": "windows"}, "windows": {"late": "drop"}, "spark": {"checkpoint": "x"}}
DEDUP = {"dedup": {"strategy": "window"}, "spark": {"checkpoint": "x"}}


def test_code_is_the_file_of_the_function_and_what_it_imports_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "rates.py").write_text("RATE = 1\n", "ascii")
    (package / "apart.py").write_text("RATE = 1\n", "ascii")
    (package / "layout.py").write_text("import json\nimport mine.rates\n", "ascii")
    (package / "own.py").write_text("from mine.layout import json\n\n\ndef own():\n    return json\n", "ascii")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("mine.own").own
    assert sorted(sources("mine.own")) == ["mine.layout", "mine.own", "mine.rates"]
    first = code_of(function)
    (package / "apart.py").write_text("RATE = 2\n", "ascii")
    assert code_of(function) == first
    (package / "rates.py").write_text("RATE = 2\n", "ascii")
    second = code_of(function)
    (package / "own.py").write_text("def own():\n    return None\n", "ascii")
    assert len({first, second, code_of(function)}) == 3


def test_two_functions_of_one_file_are_not_the_same_code() -> None:
    assert code_of(windows) == code_of(windows)
    assert len({code_of(windows), code_of(settings_of), code_of(None)}) == 3
    assert "pipeline.flow.spans" in sources(windows.__module__)


def digest(of: dict[str, Any], sections: dict[str, dict[str, Any]] | None = None, reader: str = "reader") -> bytes:
    """Return the digest of settings, `sections` over them key by key."""
    sections = sections or {}
    given = {name: {**of.get(name, {}), **sections.get(name, {})} for name in {*of, *sections}}
    codec: Any = SimpleNamespace(reader=SimpleNamespace(schema={"name": reader}), writer="writer")
    return settings_of(settings_with(**given), codec)


@pytest.mark.parametrize(
    ("path", "section", "key", "value"),
    [
        (WINDOWS, "windows", "time", "when"),
        (WINDOWS, "windows", "watermark_seconds", 1),
        (WINDOWS, "windows", "ahead_seconds", 1),
        (WINDOWS, "codec", "max_bytes", 1),
        (DEDUP, "dedup", "id_column", "uuid"),
        (DEDUP, "dedup", "horizon_seconds", 1),
        (DEDUP, "codec", "input", "avro"),
    ],
)
def test_a_setting_that_says_which_records_count_tells_two_runs_apart(
    path: dict[str, Any], section: str, key: str, value: object
) -> None:
    assert digest(path) != digest(path, {section: {key: value}})


def test_so_do_the_path_and_the_schema_of_the_source() -> None:
    assert digest(WINDOWS) != digest(DEDUP)
    assert digest(WINDOWS) != digest(WINDOWS, reader="other")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("output", "topics", ("receipts", "more")),
        ("codec", "output_schema_files", "elsewhere/{topic}.avsc"),
        ("transaction", "timeout_ms", 60_000),
        ("source", "max_offsets_per_trigger", 5),
    ],
)
def test_what_lets_a_stopped_batch_go_on_is_no_other_recipe(section: str, key: str, value: object) -> None:
    least = {
        "source": {"bootstrap": "127.0.0.1:1", "topic": "payments"},
        "output": {"topics": ("receipts",), "dead_letter_topic": "dead"},
        **WINDOWS,
    }
    assert digest(least) == digest(least, {section: {key: value}})
