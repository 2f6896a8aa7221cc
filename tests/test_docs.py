"""The documents are true: pages equal their generator, trees equal the bake, commands and links exist."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from typing import TYPE_CHECKING
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest

import pages
import pre_gen_project
from answer_sets import SUPPORTED
from conftest import PROJECT, ROOT, files

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bake

SVG = "{http://www.w3.org/2000/svg}"
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
    known = goals_of(PROJECT) if PROJECT in path.parents else goals_of(PROJECT) | goals_of(ROOT)

    assert commands_of(path) <= known


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """Links to files, and to headings in them."""
    assert dead_links(path) == []


def test_documents_of_the_smallest_project_are_true_as_well(bake: Bake, tmp_path: Path) -> None:
    """Its README is rendered for it; a page names a command that it lacks only if it says which projects have it."""
    project = bake(tmp_path, SUPPORTED["minimal"])
    documents = sorted([*project.glob("*.md"), *project.glob("docs/*.md")])

    assert documents
    assert {path.name: links for path in documents if (links := dead_links(path))} == {}
    for path in documents:
        lacking = commands_of(path) - goals_of(project)
        told = "projects that were made with" in path.read_text(encoding="utf-8")
        assert not lacking or (told and path.name != "README.md"), f"{path.name}: {lacking}"
        assert lacking <= goals_of(PROJECT)


def goals_of(folder: Path) -> set[str]:
    """List what make can be asked for in a folder."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (folder / "Makefile", *folder.glob("*.mk")))
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def commands_of(path: Path) -> set[str]:
    """List what a document asks make for."""
    text = path.read_text(encoding="utf-8")
    commands = re.findall(r"(?:^|`|&& )make ([a-z-]+(?: [a-z-]+)*)", text, re.MULTILINE)
    return {goal for command in commands for goal in command.split("  ")[0].split()}


def dead_links(path: Path) -> list[str]:
    """List the links of a document to files or headings that are not there."""
    found = []
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
        file = path.parent / unquote(target) if target else path
        text = file.read_text(encoding="utf-8") if heading and file.exists() else ""
        headings = {
            re.sub(r"[^\w -]", "", line).lower().replace(" ", "-")
            for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        if not file.exists() or (heading and heading not in headings):
            found.append(f"{target}#{heading}")
    return found


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
    """Well-formed, with a title and a description for those who cannot see it."""
    picture = ET.parse(ROOT / "docs/flow.svg").getroot()  # noqa: S314 - a file of our own
    named = {part.get("id"): part.text for part in picture if part.tag in {f"{SVG}title", f"{SVG}desc"}}

    assert picture.tag == f"{SVG}svg"
    assert picture.get("role") == "img"
    assert [bool(named[name]) for name in str(picture.get("aria-labelledby")).split()] == [True, True]


def test_the_project_readme_begins_with_the_flow_as_a_picture(default_project: Path) -> None:
    """Before its first section."""
    begin, heading, _ = (default_project / "README.md").read_text(encoding="utf-8").partition("\n## ")

    assert heading
    [flow] = re.findall(r"```mermaid\n(.*?)```", begin, re.DOTALL)
    assert flow.startswith("flowchart LR\n")
    assert flow.count("subgraph ") == len(re.findall(r"^ *end$", flow, re.MULTILINE))


def test_the_options_page_has_the_rules_that_more_than_one_answer_decides() -> None:
    """Who reads the page is not surprised by a refusal."""
    page = pages.options_page().partition("## `source_topic`")[2].partition("\n## ")[0]

    for topic in pre_gen_project.OUTPUT_TOPICS:
        [line] = pre_gen_project.topic_problems("shop", topic)
        assert "which the pipeline itself writes" in line
        assert f"`{topic}`" in page
    [line] = pre_gen_project.topic_problems("shop", "t" * 240)
    assert "must be shorter" in line
    assert f"Kafka's {pre_gen_project.LONGEST_TOPIC} characters" in page
