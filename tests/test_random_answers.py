"""Hundreds of random answer sets: each is refused and leaves nothing, or gives a sound project."""

from __future__ import annotations

import json
import tomllib
import unicodedata
from typing import TYPE_CHECKING, Any

from cookiecutter.exceptions import FailedHookException
from hypothesis import event, given, settings
from hypothesis import strategies as st

from conftest import PROJECT, ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from conftest import Bake

QUESTIONS = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
CHOICES = {name: value for name, value in QUESTIONS.items() if isinstance(value, list) and name[0] != "_"}
# The one unit test that an answer takes away.
MANIFESTS = "tests/unit/test_manifests.py"

SLUGS = st.from_regex(r"[a-z][a-z0-9]{1,8}(_[a-z0-9]{1,8}){0,3}", fullmatch=True)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
# Braces stand alone: cookiecutter itself renders, or refuses, those that make Jinja.
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="{}"), max_size=30)
TEXT = st.lists(PLAIN | st.sampled_from(["{", "}", "{x}", "}{"]), max_size=4).map(" ".join)

GOOD: dict[str, st.SearchStrategy[str]] = {
    "project_name": NAMES,
    "project_slug": SLUGS,
    "description": TEXT.map(lambda text: f"{text}."),
    "author": TEXT.map(lambda text: f"{text}."),
    "source_topic": TOPICS,
    **{name: st.sampled_from(offered) for name, offered in CHOICES.items()},
}
# Any text in any place, but with each choice from those offered: the rest is cookiecutter's own refusal.
ANY = {name: TEXT if name not in CHOICES else strategy for name, strategy in GOOD.items()}

MANY = settings(max_examples=150, deadline=None)
# Of so many examples so many at least must be accepted, and refused: far fewer than ever are.
SOME = 20


def test_likely_answers(bake: Bake, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Most of these are accepted."""
    accepted = []

    @MANY
    @given(answers=st.fixed_dictionaries({}, optional=GOOD))
    def each(answers: dict[str, str]) -> None:
        accepted.append(is_accepted(answers, bake, tmp_path_factory.mktemp("likely")))

    each()
    assert accepted.count(True) >= SOME, "too few to say anything"


def test_any_answers(bake: Bake, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Most of these are refused."""
    accepted = []

    @MANY
    @given(answers=st.fixed_dictionaries({}, optional=ANY))
    def each(answers: dict[str, str]) -> None:
        accepted.append(is_accepted(answers, bake, tmp_path_factory.mktemp("any")))

    each()
    assert accepted.count(False) >= SOME, "too few to say anything"


def is_accepted(answers: dict[str, str], bake: Bake, folder: Path) -> bool:
    """Bake, and look at what is there."""
    try:
        project = bake(folder / "out", answers)
    except FailedHookException:
        event("refused")
        assert files(folder) == ["out/"]
        return False
    event("accepted")
    assert [path.name for path in (folder / "out").iterdir()] == [project.name]
    check_project(project, answers)
    return True


def check_project(project: Path, answers: dict[str, str]) -> None:
    """Compare what the files say with what was answered."""
    pyproject, pipeline = read(project / "pyproject.toml"), read(project / "pipeline.toml")
    assert pyproject["project"]["name"] == pipeline["app"]["id"] == project.name
    assert project.name == answers.get("project_slug", project.name)
    assert pipeline["source"]["topic"] == answers.get("source_topic", "payments")
    assert (
        len({pipeline["source"]["topic"], pipeline["output"]["dead_letter_topic"], *pipeline["output"]["topics"]}) == 4
    )
    if "description" in answers:
        assert visible(pyproject["project"]["description"]) == visible(answers["description"])
    if "author" in answers:
        assert visible(pyproject["project"]["authors"][0]["name"]) == visible(answers["author"])
    assert code_files(project) == code_files(PROJECT)
    assert (project / "ops/prometheus").exists() == (answers.get("monitoring") != "none")
    assert (project / ".github").exists() == (answers.get("ci_provider", "github") == "github")
    assert (project / ".gitlab-ci.yml").exists() == (answers.get("ci_provider") == "gitlab")
    containers = answers.get("containers", "docker")
    assert (project / "Dockerfile").exists() == (containers != "none")
    assert (project / "ops/kubernetes").exists() == (containers == "kubernetes")
    assert (project / MANIFESTS).exists() == (containers == "kubernetes")
    assert (project / "LICENSE").exists() == (answers.get("license") != "Proprietary")


def code_files(folder: Path) -> list[str]:
    """List the files that no answer takes away."""
    kept = ("src/", "tests/unit/", "schemas/")
    return [name for name in files(folder) if name.startswith(kept) and name != MANIFESTS]


def visible(text: str) -> str:
    """Leave out spaces and line ends of all kinds, and controls."""
    return "".join(char for char in text if unicodedata.category(char) not in {"Cc", "Zs", "Zl", "Zp"})


def read(path: Path) -> dict[str, Any]:
    """Parse a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
