"""The hooks, rendered as cookiecutter renders them, imported, and tested as modules."""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from cookiecutter.generate import generate_context
from cookiecutter.prompt import prompt_for_config
from cookiecutter.utils import create_env_with_context
from hypothesis import given, settings
from hypothesis import strategies as st

import post_gen_project
import pre_gen_project
from answer_sets import SUPPORTED
from conftest import PROJECT, ROOT, files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from conftest import Bake

QUESTIONS = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
ASKED = [name for name in QUESTIONS if not name.startswith("_")]
CHOICES = {name: tuple(QUESTIONS[name]) for name in ASKED if isinstance(QUESTIONS[name], list)}
TEXT = st.text(st.characters(exclude_characters="{}"))


def load(name: str, context: Mapping[str, object]) -> ModuleType:
    """Render a hook with a context and import what comes out."""
    source = (ROOT / "hooks" / f"{name}.py").read_text(encoding="utf-8")
    rendered = create_env_with_context({"cookiecutter": context}).from_string(source).render(cookiecutter=context)
    module = ModuleType(name)
    exec(compile(rendered, f"{name}.py", "exec"), vars(module))  # noqa: S102 - that is what cookiecutter does
    return module


def context_of(answers: Mapping[str, str]) -> dict[str, str]:
    """Answer all questions as cookiecutter does with --no-input."""
    context: dict[str, str] = prompt_for_config(
        generate_context(str(ROOT / "cookiecutter.json"), extra_context=dict(answers)), no_input=True
    )
    return context


@pytest.mark.parametrize("hook", ["pre_gen_project", "post_gen_project"])
@given(answers=st.dictionaries(st.sampled_from(ASKED), st.text()))
def test_any_answer_reaches_a_hook_as_it_is(hook: str, answers: dict[str, str]) -> None:
    """Quotes of all kinds, backslashes, line ends, half a surrogate pair: data, never code."""
    assert json.loads(load(hook, answers).ANSWERS) == answers


@pytest.mark.parametrize("answers", SUPPORTED.values(), ids=SUPPORTED)
def test_supported_answers_have_no_problems(answers: dict[str, str]) -> None:
    """The rules alone, without a bake."""
    assert list(pre_gen_project.problems(context_of(answers))) == []


@pytest.mark.parametrize("question", pre_gen_project.RULES)
def test_the_example_of_each_rule_keeps_it(question: str) -> None:
    """Whoever types the example gets through."""
    rule = pre_gen_project.RULES[question]

    assert rule.holds(rule.example)
    assert list(pre_gen_project.problems(context_of({question: rule.example}))) == []


@given(st.text(), st.text())
@settings(max_examples=300)
def test_the_rules_judge_any_text_without_falling_over(slug: str, topic: str) -> None:
    """Neither accepts what could leave its place."""
    for rule in pre_gen_project.RULES.values():
        rule.holds(slug)
    if pre_gen_project.is_slug(slug):
        assert re.fullmatch(r"[a-z][a-z0-9_]{1,49}", slug, re.ASCII)
    if pre_gen_project.is_topic(topic):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", topic, re.ASCII)


@settings(max_examples=300)
@given(description=TEXT, author=TEXT, licence=st.sampled_from(CHOICES["license"]))
def test_the_hook_derives_what_cookiecutter_derives(description: str, author: str, licence: str) -> None:
    """Written twice, in Jinja and in Python: they must not part."""
    context = context_of({"description": description, "author": author, "license": licence})

    assert {name: context[name] for name in pre_gen_project.derived(context)} == pre_gen_project.derived(context)
    assert {name for name in QUESTIONS if name.startswith("__")} == {*pre_gen_project.derived(context), "__prompts__"}


@settings(max_examples=300)
@given(st.text(st.characters(codec="utf-8")))
def test_quoted_text_is_what_toml_reads(text: str) -> None:
    """Between double quotes."""
    assert tomllib.loads(f'value = "{pre_gen_project.quoted(text)}"') == {"value": text}


@given(st.text(st.characters(codec="utf-8")))
def test_text_on_one_line_starts_no_header(text: str) -> None:
    """Package metadata is parted by line ends, and a terminal is steered by control characters."""
    line = pre_gen_project.one_line(text)

    assert len(line.splitlines()) <= 1
    assert not [char for char in line if unicodedata.category(char) == "Cc"]


def test_ten_questions_at_most_each_with_a_prompt_and_a_rule() -> None:
    """Choices have a line for every answer as well."""
    prompts = QUESTIONS["__prompts__"]

    assert len(ASKED) <= 10
    assert list(prompts) == ASKED == list(pre_gen_project.RULES)
    for name, offered in CHOICES.items():
        assert tuple(prompts[name]) == ("__prompt__", *offered)


def test_the_hooks_know_the_choices_that_are_offered() -> None:
    """The table of each hook against cookiecutter.json."""
    assert pre_gen_project.CHOICES == CHOICES
    assert {name: tuple(answers) for name, answers in post_gen_project.UNCHOSEN.items()} == CHOICES


def test_every_path_of_the_table_is_in_the_template() -> None:
    """A path that was renamed would be deleted no more."""
    for answers in post_gen_project.UNCHOSEN.values():
        for paths in answers.values():
            assert [path for path in paths if not (PROJECT / path).exists()] == []


def test_no_dependency_may_be_the_slug() -> None:
    """New dependencies must be added to the names that are taken."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    names = {re.split(r"[^\w-]", line)[0].replace("-", "_").lower() for line in needed}

    assert {name for name in names if not name.startswith("types_")} <= pre_gen_project.TAKEN


def test_the_output_topics_are_those_of_the_settings_file() -> None:
    """The loop rule is about the topics that the shipped settings write."""
    settings_file = tomllib.loads((PROJECT / "pipeline.toml").read_text(encoding="utf-8"))

    assert tuple(settings_file["output"]["topics"]) == pre_gen_project.OUTPUT_TOPICS


def test_the_second_hook_deletes_what_stands_in_its_table_and_nothing_else(
    bake: Bake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run on a project with all files with the minimal answers."""
    project = bake(tmp_path, {"containers": "kubernetes"})
    (project / ".gitlab-ci.yml").touch()
    (project / "mine.txt").touch()
    before = set(files(project))
    context = context_of(SUPPORTED["minimal"])
    monkeypatch.chdir(project)

    load("post_gen_project", context).main()

    gone = before - set(files(project))
    assert {".github/workflows/ci.yml", ".gitlab-ci.yml", "LICENSE"} <= gone
    table = [path for answers in post_gen_project.UNCHOSEN.values() for path in answers[next(reversed(answers))]]
    assert {name for name in gone if not any(name == path or name.startswith(f"{path}/") for path in table)} == set()
    assert {path for path in table if (project / path).exists()} == set()
    assert capsys.readouterr().out.split("\n\n")[1].split("\n") == [
        "    cd payments_pipeline",
        "    make demo",
        "    make test",
    ]


def test_a_path_that_is_missing_is_an_error_of_the_table(tmp_path: Path) -> None:
    """It is not passed over in silence."""
    with pytest.raises(FileNotFoundError):
        post_gen_project.remove(tmp_path / "missing")
