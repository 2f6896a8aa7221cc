"""Free text is inert in every generated file: each file is parsed by its own parser, and the value compared."""

from __future__ import annotations

import ast
import html
import json
import re
import tomllib
import unicodedata
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from answer_sets import QUOTES, SCRIPTS, SUPPORTED
from conftest import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Bake

# The only files that hold free text. Any other must not differ by a byte.
HOLDERS = {"LICENSE", "README.md", "pyproject.toml"}

# name of the case -> text, and what stands in the files if that is not the text itself
TEXTS = {
    "quotes": (QUOTES, ""),
    "other scripts": (SCRIPTS, ""),
    "TOML": (
        '"\nname = "evil"\n[project.scripts]\nevil = "evil:main',
        '" name = "evil" [project.scripts] evil = "evil:main',
    ),
    "TOML in three quotes": ('"""\n[tool.evil]\n"""', '""" [tool.evil] """'),
    "escapes": ('\\u0041 \\x41 \\" \\\\ \\', ""),
    "YAML": ("a: b\n- c\n!!python/object/apply:os.system [id]", "a: b - c !!python/object/apply:os.system [id]"),
    "Markdown": (
        "# h1\n\n```\ncode\n\n* list\n\n| a | b |\n|---|---|\n[link](javascript:x) ![i](x)",
        "# h1 ``` code * list | a | b | |---|---| [link](javascript:x) ![i](x)",
    ),
    "HTML": ("</p><script>alert(1)</script><!-- &amp; &#x41; <p>", ""),
    "licence": ("Evil\n\nPermission is hereby granted", "Evil Permission is hereby granted"),
    "shell": ("$(id) `id` $HOME ${HOME} && id | id > /x ; id", ""),
    "lone braces": ("{a} }b{ % # {", ""),
    "controls": (
        "a\x00b\x07c\x1bd\x7fe\x80f\x9b31mg\x85h\u2028i\u2029j\rk\r\nl\vm\fn \x01 o\x02 ",
        "abcdef31mg h i j k l m n o",
    ),
    "beyond sixteen bits": ("\U0001d49c 👩\u200d👩\u200d👧 🇺🇳", ""),
}
LICENCES = {"MIT": "Copyright (c) ", "Apache-2.0": "   Copyright "}


@pytest.fixture(scope="module")
def plain(bake: Bake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bake the same project with harmless text, to compare with; under each licence that is a file."""
    return {
        name: bake(tmp_path_factory.mktemp("plain"), {"license": name, "description": "plain", "author": "plain"})
        for name in LICENCES
    }


@pytest.mark.parametrize("licence", LICENCES)
@pytest.mark.parametrize("case", TEXTS)
def test_text_changes_nothing_but_its_own_place(
    case: str, licence: str, plain: dict[str, Path], bake: Bake, tmp_path: Path
) -> None:
    """As description and as author at once."""
    text, shown = TEXTS[case]
    project = bake(tmp_path, {"license": licence, "description": text, "author": text})

    assert check_inert(project, plain[licence], licence) == (shown or text)


def test_what_jinja_makes_of_a_text_is_text(plain: dict[str, Path], bake: Bake, tmp_path: Path) -> None:
    """Cookiecutter renders what is given on the command line; what comes out is not rendered again."""
    text = "{{ cookiecutter.__class__ }}"
    project = bake(tmp_path, {"license": "MIT", "description": text, "author": text})

    assert re.fullmatch(r"<class '[\w.]+'>", check_inert(project, plain["MIT"], "MIT"))


def test_the_apache_licence_is_the_text_of_apache(plain: dict[str, Path]) -> None:
    """That of this repository, to the indent of its title; but for the line with the holder of the copyright."""
    own, theirs = (read(folder, "LICENSE").split("\n") for folder in (ROOT, plain["Apache-2.0"]))

    assert [line for line in own if "Copyright [" not in line and not re.match(r" +Copyright (?!\()", line)] == [
        line for line in theirs if line != "   Copyright plain"
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters="{}"), max_size=80).map(lambda text: f"{text}."),
    licence=st.sampled_from(list(LICENCES)),
)
def test_random_text_changes_nothing_but_its_own_place(
    text: str, licence: str, plain: dict[str, Path], bake: Bake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any text that has something to show: all that can be seen of it is there, in one line, and no control."""
    answers = {"license": licence, "description": text, "author": text}
    shown = check_inert(bake(tmp_path_factory.mktemp("random"), answers), plain[licence], licence)

    assert without_space(shown) == without_space(text)
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Zl", "Zp"}]
    assert " ".join(shown.split()) == shown


def check_inert(project: Path, plain: Path, licence: str) -> str:
    """Compare with the plain bake: same files, same bytes, one and the same text in its places; returns that text."""
    expected: str = tomllib.loads(read(project, "pyproject.toml"))["project"]["description"]
    assert files(project) == files(plain)
    for name in files(project):
        if name not in HOLDERS:
            assert (project / name).read_bytes() == (plain / name).read_bytes()

    toml, plain_toml = (tomllib.loads(read(folder, "pyproject.toml")) for folder in (project, plain))
    assert toml["project"].pop("description") == expected
    assert toml["project"].pop("authors") == [{"name": expected}]
    del plain_toml["project"]["description"], plain_toml["project"]["authors"]
    assert toml == plain_toml

    holder, plain_holder = (read(folder, "LICENSE").split("\n") for folder in (project, plain))
    assert holder == [
        f"{LICENCES[licence]}{expected}" if line == f"{LICENCES[licence]}plain" else line for line in plain_holder
    ]
    assert holder != plain_holder or expected == "plain"

    readme, plain_readme = (
        MarkdownIt().enable("table").parse(read(folder, "README.md")) for folder in (project, plain)
    )
    [shown] = [token for token in readme if token.type == "html_block"]
    assert html.unescape(shown.content) == f"<p>{expected}</p>\n"
    assert "<" not in shown.content.removeprefix("<p>").removesuffix("</p>\n")
    assert [(token.type, token.content) for token in readme if token is not shown] == [
        (token.type, token.content) for token in plain_readme if token.type != "html_block"
    ]
    return expected


@pytest.mark.parametrize("case", SUPPORTED)
def test_every_file_is_valid_in_its_own_language(case: str, bake: Bake, tmp_path: Path) -> None:
    """TOML, JSON, Avro, Python and YAML, by a parser of each; of prose, scripts and makefiles nothing is said here."""
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


def without_space(text: str) -> str:
    """Leave out what is not for the eye: spaces and line ends of all kinds, and controls."""
    return "".join(char for char in text if unicodedata.category(char) not in {"Cc", "Zs", "Zl", "Zp"})


def read(folder: Path, name: str) -> str:
    """Read a file with its line ends as they are."""
    return (folder / name).read_bytes().decode("utf-8")
