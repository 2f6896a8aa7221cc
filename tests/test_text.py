"""Free text is inert in every generated file: each file is parsed by its own parser, and the value compared."""

from __future__ import annotations

import ast
import html
import json
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from answer_sets import QUOTES, SCRIPTS, SUPPORTED
from conftest import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bake

# The only files that hold free text. Any other must not differ by a byte.
HOLDERS = {"LICENSE", "README.md", "pyproject.toml"}

TEXTS = {
    "quotes": QUOTES,
    "other scripts": SCRIPTS,
    "TOML": '"\nname = "evil"\n[project.scripts]\nevil = "evil:main',
    "TOML in three quotes": '"""\n[tool.evil]\n"""',
    "escapes": '\\u0041 \\x41 \\" \\\\ \\',
    "YAML": "a: b\n- c\n!!python/object/apply:os.system [id]",
    "Markdown": "# h1\n\n```\ncode\n\n* list\n\n| a | b |\n|---|---|\n[link](javascript:x) ![i](x)",
    "HTML": "</p><script>alert(1)</script><!-- &amp; &#x41; <p>",
    "licence": "Evil\n\nPermission is hereby granted",
    "shell": "$(id) `id` $HOME ${HOME} && id | id > /x ; id",
    "lone braces": "{a} }b{ % # {",
    "controls": "a\x00b\x07c\x1bd\x7fe\x85f\u2028g\u2029h\rj\r\nk\vl\fm",
    "beyond sixteen bits": "\U0001d49c 👩\u200d👩\u200d👧 🇺🇳",
}


@pytest.fixture(scope="module")
def plain(bake: Bake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bake the same project with harmless text, to compare with."""
    return bake(tmp_path_factory.mktemp("plain"), {"license": "MIT", "description": "plain", "author": "plain"})


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_changes_nothing_but_its_own_place(text: str, plain: Path, bake: Bake, tmp_path: Path) -> None:
    """As description and as author at once."""
    check_inert(text, plain, bake(tmp_path, {"license": "MIT", "description": text, "author": text}))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1, max_size=80))
def test_random_text_changes_nothing_but_its_own_place(
    text: str, plain: Path, bake: Bake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any text that has something to show."""
    if one_line(text).strip():
        answers = {"license": "MIT", "description": text, "author": text}
        check_inert(text, plain, bake(tmp_path_factory.mktemp("random"), answers))


def check_inert(text: str, plain: Path, project: Path) -> None:
    """Compare with the plain bake: same files, same bytes, the text itself in its places and nowhere else."""
    expected = one_line(text)
    assert files(project) == files(plain)
    for name in files(project):
        if name not in HOLDERS:
            assert (project / name).read_bytes() == (plain / name).read_bytes()

    toml, plain_toml = (tomllib.loads(read(folder, "pyproject.toml")) for folder in (project, plain))
    assert toml["project"].pop("description") == expected
    assert toml["project"].pop("authors") == [{"name": expected}]
    del plain_toml["project"]["description"], plain_toml["project"]["authors"]
    assert toml == plain_toml

    licence, plain_licence = (read(folder, "LICENSE").split("\n") for folder in (project, plain))
    assert licence == [line.replace("(c) plain", f"(c) {expected}") for line in plain_licence]

    readme, plain_readme = (
        MarkdownIt().enable("table").parse(read(folder, "README.md")) for folder in (project, plain)
    )
    [shown] = [token for token in readme if token.type == "html_block"]
    assert html.unescape(shown.content) == f"<p>{expected}</p>\n"
    assert "<" not in shown.content.removeprefix("<p>").removesuffix("</p>\n")
    assert [(token.type, token.content) for token in readme if token is not shown] == [
        (token.type, token.content) for token in plain_readme if token.type != "html_block"
    ]


@pytest.mark.parametrize("case", SUPPORTED)
def test_every_file_is_valid_in_its_own_language(case: str, bake: Bake, tmp_path: Path) -> None:
    """By its own parser."""
    project = bake(tmp_path, SUPPORTED[case])
    parsers: dict[str, Callable[[str], object]] = {
        ".toml": tomllib.loads,
        ".json": json.loads,
        ".avsc": json.loads,
        ".py": ast.parse,
    }
    parsers |= dict.fromkeys([".yml", ".yaml"], lambda text: list(yaml.safe_load_all(text)))

    for name in files(project):
        parse = parsers.get((project / name).suffix)
        assert parse is None or parse(read(project, name)) is not None, name


@pytest.mark.parametrize("case", SUPPORTED)
def test_every_answer_arrives_where_it_belongs(case: str, bake: Bake, tmp_path: Path) -> None:
    """The values that the project's own tools will read."""
    project = bake(tmp_path, SUPPORTED[case])
    answers = {
        "project_name": "Payments pipeline",
        "source_topic": "payments",
        "license": "Apache-2.0",
        **SUPPORTED[case],
    }
    toml = tomllib.loads(read(project, "pyproject.toml"))["project"]
    pipeline = tomllib.loads(read(project, "pipeline.toml"))

    assert toml["name"] == project.name == pipeline["app"]["id"]
    assert toml["license"].removeprefix("LicenseRef-") == answers["license"]
    assert pipeline["source"]["topic"] == answers["source_topic"]
    assert pipeline["output"]["dead_letter_topic"] == f"{answers['source_topic']}.dead-letters"
    assert read(project, "README.md").startswith(f"# {answers['project_name']}\n")
    assert (project / "LICENSE").exists() == (answers["license"] != "Proprietary")


def one_line(text: str) -> str:
    """Say what stands in the files: white space made single, control characters of ASCII left out."""
    return "".join(char for char in " ".join(text.split()) if char >= " ")


def read(folder: Path, name: str) -> str:
    """Read a file with its line ends as they are."""
    return (folder / name).read_bytes().decode("utf-8")
