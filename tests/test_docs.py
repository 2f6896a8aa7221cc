"""The documents are true: pages equal their generator, trees equal the bake, commands and links exist."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

import pages
import pre_gen_project
from answer_sets import SUPPORTED
from conftest import PROJECT, ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bake

TRANSFORM = (PROJECT / "src/pipeline/flow/transform.py").read_text(encoding="utf-8")

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("ci/*.md"),
        *PROJECT.glob("*.md"),
        *PROJECT.glob("docs/*.md"),
    ]
)
@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    """After a change: `make docs`."""
    assert path.read_text(encoding="utf-8") == pages.pages()[path], "make docs"


def test_the_tree_page_lists_every_file_of_the_template() -> None:
    """None is passed over."""
    page = pages.tree_page()

    for name in files(PROJECT):
        assert f"| `{name.rpartition('/')[2]}` |" in page


def test_the_readme_shows_the_tree_of_a_project(default_project: Path) -> None:
    """Every path in it exists; every file and folder at the top is in it, and every part of the package."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [tree] = re.findall(r"```\n(payments_pipeline/\n.*?)```", text, re.DOTALL)
    shown, above = set(), ""
    for indent, name in re.findall(r"^( +)(\S+) {2,}\S", tree, re.MULTILINE):
        shown.add(name if indent == "  " else above + name)
        above = name if indent == "  " else above

    tops = {path.name + "/" * path.is_dir() for path in default_project.iterdir()} - {".dockerignore", ".gitignore"}
    package = {f"src/pipeline/{path.name}/" for path in (default_project / "src/pipeline").iterdir() if path.is_dir()}
    assert len(shown) == len(tree.splitlines()) - 1
    assert {name for name in shown if not (default_project / name).exists()} == set()
    assert (tops - {"src/"}) | package <= shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_in_a_document_exists(path: Path) -> None:
    """In the Makefile of its own folder, or of a project where the document speaks of one."""
    makefiles = [path.read_text(encoding="utf-8") for path in (PROJECT / "Makefile", *PROJECT.glob("*.mk"))]
    if PROJECT not in path.parents:
        makefiles.append((ROOT / "Makefile").read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    commands = re.findall(r"(?:^|`|&& )make ([a-z-]+(?: [a-z-]+)*)", text, re.MULTILINE)

    for goal in [goal for command in commands for goal in command.split("  ")[0].split()]:
        assert any(re.search(rf"^{goal}:", makefile, re.MULTILINE) for makefile in makefiles), f"make {goal}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """Links to files, and to headings in them."""
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        file = path.parent / unquote(target) if target else path
        assert file.exists(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
        assert not heading or heading in {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}


@pytest.mark.parametrize("case", ["default", "minimal", "gitlab-mit"])
def test_the_project_readme_says_what_is_yours(case: str, bake: Bake, tmp_path: Path) -> None:
    """The skip list of cruft, in its order or not; without what the answers have taken away."""
    project = bake(tmp_path, SUPPORTED[case])
    [table] = re.findall(
        r"## What is yours\n\n(.*?)\n\n", (project / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    skip = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cruft"]["skip"]

    named = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert sorted(named) == sorted(
        f"{name}/" if (project / name).is_dir() else name for name in skip if (project / name).exists()
    )


def test_the_transform_is_short_enough_to_be_read_first() -> None:
    """Under 60 lines, with its test beside it."""
    assert len((PROJECT / "src/pipeline/flow/transform.py").read_text(encoding="utf-8").splitlines()) < 60
    assert (PROJECT / "tests/spark/test_transform.py").exists()


@pytest.mark.parametrize("path", [ROOT / "README.md", PROJECT / "README.md"], ids=["template", "project"])
def test_the_example_in_a_readme_is_python(path: Path) -> None:
    """It may not be run as it stands, but it parses."""
    for example in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
        ast.parse(
            example if example.startswith("def") else f"def f():\n{re.sub('^', ' ', example, flags=re.MULTILINE)}"
        )


@pytest.mark.parametrize("path", [ROOT / "README.md", PROJECT / "README.md"], ids=["template", "project"])
def test_the_example_in_a_readme_fits_the_schemas(path: Path) -> None:
    """Other columns than a topic's schema has would stop the pipeline of whoever copies it."""
    [example] = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    written = re.findall(r'output\("(\w+)", key="\w+", value=record\(([^()]*)\)\)', example)

    assert [topic for topic, _ in written] == list(pre_gen_project.OUTPUT_TOPICS)
    for topic, columns in written:
        schema = json.loads((PROJECT / f"schemas/{topic}.avsc").read_text(encoding="utf-8"))
        assert list(ast.literal_eval(f"[{columns}]")) == [field["name"] for field in schema["fields"]]
        assert f'output("{topic}", key="account", value=record({columns}))' in TRANSFORM


def test_exit_codes_in_the_readme_are_those_of_the_code() -> None:
    """Errors with their codes against the table."""
    code = (PROJECT / "src/pipeline/errors.py").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d) \|", (PROJECT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(table) == {"0", *re.findall(r"exit_code = (\d)", code)}


def test_the_picture_is_sound() -> None:
    """Well-formed, with a title for those who cannot see it."""
    text = (ROOT / "docs/flow.svg").read_text(encoding="utf-8")

    assert re.search(r'role="img" aria-labelledby="title desc"', text)
    assert "<title" in text
