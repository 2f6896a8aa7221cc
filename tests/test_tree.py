"""Each supported set of answers gives exactly the files of its golden listing, and nothing of the template's own."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from answer_sets import SUPPORTED
from conftest import PROJECT, ROOT, files

if TYPE_CHECKING:
    from conftest import Bake

GOLDEN = Path(__file__).parent / "golden"
CACHES = re.compile(
    r"(^|/)(__pycache__|\.\w+_cache|\.hypothesis|\.venv|build|[^/]+\.egg-info)(/|$)|\.pyc$|\.orig$|\.rej$"
)
SOURCES = [name for name in files(PROJECT) if name.endswith(".py")]


@pytest.mark.parametrize("case", SUPPORTED)
def test_the_file_set_is_the_golden_one(case: str, bake: Bake, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """After a wanted change: `make golden`, and read the difference."""
    listing = "".join(f"{name}\n" for name in files(bake(tmp_path, SUPPORTED[case])))
    golden = GOLDEN / f"{case}.txt"
    if pytestconfig.getoption("--golden"):
        golden.write_text(listing, encoding="utf-8")

    assert listing == golden.read_text(encoding="utf-8"), "see the difference, then: make golden"


def test_every_golden_listing_belongs_to_a_set() -> None:
    """A listing that nobody compares would rot."""
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SUPPORTED)


@pytest.mark.parametrize("case", SUPPORTED)
def test_nothing_of_the_template_is_left_in_a_project(case: str, bake: Bake, tmp_path: Path) -> None:
    """No braces of cookiecutter, no caches, no empty folders, no files that cannot be read as text."""
    project = bake(tmp_path, SUPPORTED[case])

    for name in files(project):
        assert not name.endswith("/"), f"{name} is empty"
        assert not CACHES.search(name), f"{name} is a cache: make tidy"
        text = (project / name).read_text(encoding="utf-8")
        assert not re.search(r"\{[{%]-?\s*(cookiecutter|if|else|elif|endif|for|set|raw|import)\b", text), name
        assert "\x00" not in text
        assert text.endswith("\n") or not text, f"{name} does not end with a newline"


@pytest.mark.parametrize("name", SOURCES)
def test_python_parses_in_place(name: str) -> None:
    """So the project is linted, typed and tested without a bake."""
    ast.parse((PROJECT / name).read_text(encoding="utf-8"), name)


def test_python_is_the_same_after_the_bake(bake: Bake, tmp_path: Path) -> None:
    """Byte for byte, under answers that differ from all defaults."""
    project = bake(tmp_path, SUPPORTED["any-text"])

    assert [name for name in files(project) if name.endswith(".py")] == SOURCES
    for name in SOURCES:
        assert (project / name).read_bytes() == (PROJECT / name).read_bytes()


def test_the_windows_that_tests_keep_are_those_of_the_template() -> None:
    """A user changes windows.py, and the template's own tests must not fail for it: they have a copy."""
    own, kept = (
        (PROJECT / name).read_text(encoding="utf-8").partition("from __future__")[2]
        for name in ("src/pipeline/flow/windows.py", "tests/support/scoring.py")
    )

    assert kept == own


def test_no_folder_is_copied_whole() -> None:
    """A pattern that matches a folder would let a second bake delete what the user put there."""
    patterns = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))["_copy_without_render"]
    folders = [path.relative_to(PROJECT).as_posix() for path in PROJECT.rglob("*") if path.is_dir()]

    assert [folder for folder in folders for pattern in patterns if fnmatch(folder, pattern)] == []


def test_jinja_stands_only_in_prose_and_inside_quotes() -> None:
    """Files that are rendered and need Jinja are few; TOML must be valid before it is rendered."""
    patterns = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))["_copy_without_render"]
    rendered = [name for name in files(PROJECT) if not any(fnmatch(name, pattern) for pattern in patterns)]

    assert {name for name in rendered if re.search(r"\{[{%#]", (PROJECT / name).read_text(encoding="utf-8"))} == {
        "LICENSE",
        "README.md",
        "pipeline.toml",
        "pyproject.toml",
    }
