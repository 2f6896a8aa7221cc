"""Hostile answers are refused with the rule and an example, leave nothing behind and run nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cookiecutter.exceptions import FailedHookException, OutputDirExistsException
from jinja2.exceptions import TemplateSyntaxError

from answer_sets import REFUSED, SUPPORTED
from conftest import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Bake

# Each touches the canary if anything ever runs it; the canary lies outside of what a failed bake removes.
INJECTIONS = {
    "Python in double quotes": '" + __import__("os").system("touch CANARY") + "',
    "Python in single quotes": "' + __import__('os').system('touch CANARY') + '",
    "Python in three quotes": '""" + __import__("os").system("touch CANARY") + """',
    "Python on the next line": '\n__import__("os").system("touch CANARY")\n',
    "shell command": "$(touch CANARY) `touch CANARY` ; touch CANARY",
    "make function": "$(shell touch CANARY)",
    "escaped quote": '\\" + __import__("os").system("touch CANARY") #',
}


@pytest.mark.parametrize(("answers", "question"), REFUSED.values(), ids=REFUSED)
def test_a_bad_answer_is_refused_with_its_rule_and_leaves_nothing(
    answers: dict[str, str], question: str, bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bake two folders deep, so that a climb upwards would be seen."""
    before = files(tmp_path)

    with pytest.raises(FailedHookException):
        bake(tmp_path / "deep" / "er", answers)

    refusal = capfd.readouterr().err
    assert re.search(rf"^refused: {question} = .*(must |is derived)", refusal, re.MULTILINE), refusal
    assert question.startswith("__") or "for example: " in refusal
    assert files(tmp_path) == [*before, "deep/er/"]
    assert not Path("/slug_of_the_template_tests").exists()


def test_a_slug_that_names_no_folder_does_not_overwrite_its_parent(bake: Bake, tmp_path: Path) -> None:
    """Even when told to overwrite, the hook stands before the first file."""
    (tmp_path / "precious").write_text("kept", encoding="utf-8")

    with pytest.raises(FailedHookException):
        bake(tmp_path, {"project_slug": "."}, overwrite_if_exists=True)

    assert files(tmp_path) == ["precious"]


@pytest.mark.parametrize("text", ["{{", "{% raw", "{{ 7*7", "{# x"])
def test_broken_jinja_is_refused_by_the_tool_itself(text: str, bake: Bake, tmp_path: Path) -> None:
    """Cookiecutter renders answers given on the command line, before any hook."""
    with pytest.raises(TemplateSyntaxError):
        bake(tmp_path / "out", {"description": text})

    assert files(tmp_path) == ["out/"]


@pytest.mark.parametrize("choice", ["license", "value_format", "ci_provider", "monitoring", "containers"])
def test_an_answer_that_is_not_offered_is_refused(choice: str, bake: Bake, tmp_path: Path) -> None:
    """On the command line by cookiecutter, which names the choices."""
    with pytest.raises(ValueError, match="the choices are"):
        bake(tmp_path / "out", {choice: "evil"})

    assert files(tmp_path) == ["out/"]


@pytest.mark.parametrize("injection", INJECTIONS.values(), ids=INJECTIONS)
@pytest.mark.parametrize("question", ["project_name", "project_slug", "description", "author", "source_topic"])
def test_no_answer_is_ever_run(question: str, injection: str, bake: Bake, tmp_path: Path) -> None:
    """Accepted or refused: the canary is never touched, by the hooks or by the project's make."""
    canary = tmp_path / "canary"
    answers = {"project_slug": "safe_slug", question: injection.replace("CANARY", str(canary))}
    try:
        project = bake(tmp_path / "out", answers)
    except FailedHookException:
        assert files(tmp_path) == ["out/"]
    else:
        assert question in {"description", "author"}
        subprocess.run(["make", "-C", project, "help"], check=True, capture_output=True)
    assert not canary.exists()


def test_an_existing_project_is_not_overwritten(bake: Bake, tmp_path: Path) -> None:
    """Run twice: the second run refuses and changes nothing."""
    project = bake(tmp_path)
    (project / "README.md").write_text("mine", encoding="utf-8")
    before = files(tmp_path)

    with pytest.raises(OutputDirExistsException):
        bake(tmp_path)

    assert (project / "README.md").read_text(encoding="utf-8") == "mine"
    assert files(tmp_path) == before


def test_a_refusal_does_not_delete_a_folder_that_was_there(bake: Bake, tmp_path: Path) -> None:
    """A bad answer with the tool's own overwrite flag: the hook refuses, the folder stays."""
    project = bake(tmp_path)
    before = files(tmp_path)

    with pytest.raises(FailedHookException):
        bake(tmp_path, {"author": "\x00"}, overwrite_if_exists=True)

    assert files(tmp_path) == before
    assert project.exists()


def test_a_read_only_target_is_left_empty(bake: Bake) -> None:
    """Root may write everywhere, so root becomes somebody else for a moment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(f"replay_dir: {name}/replay\n", encoding="utf-8")
        (folder / "replay").mkdir(mode=0o777)
        (folder / "replay").chmod(0o777)
        (folder / "target").mkdir()
        folder.chmod(0o755)
        (folder / "target").chmod(0o555)
        with nobody(), pytest.raises(OSError, match="Unable to create directory"):
            bake(folder / "target", config_file=str(folder / "config.yaml"))

        assert files(folder / "target") == []


@contextmanager
def nobody() -> Iterator[None]:
    """Drop the rights of root, if we have them."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_the_command_line_ends_with_an_error_and_the_rule(tmp_path: Path, config: Path) -> None:
    """As a user meets it."""
    run = _command_line(tmp_path, config, "--no-input", answers=("project_slug=My Project",))

    assert run.returncode == 1
    assert "refused: project_slug = 'My Project': must be" in run.stderr
    assert "for example: payments_pipeline" in run.stderr
    assert files(tmp_path) == []


def test_jinja_typed_at_a_prompt_is_refused(tmp_path: Path, config: Path) -> None:
    """A prompt does not render what is typed; a later update by cruft would."""
    typed = ["Fine", "fine_slug", "{{ 7*7 }}", "", "", "", "", "", "", ""]

    run = _command_line(tmp_path, config, typed="\n".join(typed) + "\n")

    assert run.returncode == 1
    assert "refused: description = '{{ 7*7 }}': must be text" in run.stderr
    assert files(tmp_path) == []


def test_a_replay_file_is_held_to_the_same_rules(tmp_path: Path, config: Path) -> None:
    """It is neither rendered nor checked by cookiecutter."""
    names = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
    context: dict[str, object] = dict.fromkeys(names, "x")
    context |= {"project_slug": "fine_slug", "_copy_without_render": ["*.py"], "license": "Beerware"}
    replay = tmp_path / "replay.json"
    replay.write_text(json.dumps({"cookiecutter": context}), encoding="utf-8")

    run = _command_line(tmp_path, config, "--replay-file", str(replay))

    assert run.returncode == 1
    assert "refused: license = 'Beerware': must be one of Apache-2.0, MIT, Proprietary" in run.stderr
    assert files(tmp_path) == ["replay.json"]


def test_a_refusal_cannot_steer_the_terminal(bake: Bake, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is echoed is ASCII without control characters, and short."""
    with pytest.raises(FailedHookException):
        bake(tmp_path, {"source_topic": "\x1b[2J\u202e" + "t" * 10_000})

    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("refused:")]
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 400


def test_all_answers_of_all_questions_are_in_a_supported_set() -> None:
    """A new choice must be added to a set, or nothing proves that it bakes."""
    questions = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
    choices = {name: value for name, value in questions.items() if isinstance(value, list) and name[0] != "_"}

    for name, offered in choices.items():
        assert {answers.get(name, offered[0]) for answers in SUPPORTED.values()} == set(offered)


def _command_line(
    into: Path, config: Path, *options: str, answers: tuple[str, ...] = (), typed: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cookiecutter", "--config-file", str(config), "--output-dir", str(into)]
    command += [*options, str(ROOT), *answers]
    return subprocess.run(command, check=False, capture_output=True, text=True, input=typed)
