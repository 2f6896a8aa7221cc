"""The commands: what they say when a tool is missing, and what they hand down to a project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from conftest import PROJECT, ROOT, outside_make

if TYPE_CHECKING:
    from pathlib import Path

OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"
OLD_PYTHON = '#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.8.18; exit 0; }\nexit 1\n'
WORKFLOWS = [
    ROOT / ".github/workflows/ci.yml",
    PROJECT / ".github/workflows/ci.yml",
    PROJECT / ".gitlab-ci.yml",
]
SETUP = PROJECT / ".github/actions/setup/action.yml"


@pytest.mark.parametrize("goal", ["demo", "test", "check", "bake"])
@pytest.mark.parametrize(
    ("program", "script", "line"),
    [
        ("java", OLD_JAVA, "Java 11 at .* is too old, 17 or newer is needed: install Java 17 or 21"),
        ("python3", OLD_PYTHON, "Python 3.11 or newer is needed, found Python 3.8.18: install it"),
    ],
    ids=["old Java", "old Python"],
)
def test_an_old_tool_is_named_in_one_line_before_anything_is_made(
    goal: str, program: str, script: str, line: str, tmp_path: Path
) -> None:
    """At the root of the template."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(script, encoding="utf-8")
    (tmp_path / "bin" / program).chmod(0o755)

    run = make(ROOT, goal, f"VENV={tmp_path}/venv", f"BUILD={tmp_path}/build", path=f"{tmp_path}/bin")

    told = [text for text in run.stderr.splitlines() if not text.startswith("make")]
    assert run.returncode != 0
    assert len(told) == 1
    assert re.match(line, told[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize("home", ["missing", "empty"])
def test_a_java_home_without_java_is_named_in_one_line(home: str, tmp_path: Path) -> None:
    """In a project, before its virtual environment is made."""
    (tmp_path / "empty").mkdir()

    run = make(PROJECT, "tools", JAVA_HOME=str(tmp_path / home))

    assert run.returncode != 0
    assert re.match(rf"JAVA_HOME is {tmp_path / home}, but .* is not a program: install Java 17 or 21", run.stderr)


@pytest.mark.parametrize("folder", [ROOT, PROJECT], ids=["template", "project"])
def test_every_command_is_in_the_help(folder: Path) -> None:
    """Except for those that only other commands use."""
    phony = re.findall(r"^\.PHONY: (.*)$", goals(folder), re.MULTILINE)

    shown = re.findall(r"^  make (\S+) +\S", make(folder, "help").stdout, re.MULTILINE)

    assert phony
    assert set(shown) == set(" ".join(phony).split()) - {"classes", "tools", "tidy"}


def test_a_project_is_baked_by_hand_with_any_answers_into_any_folder(tmp_path: Path) -> None:
    """`make bake`; a second one into the same folder is refused and changes nothing."""
    given = ["ANSWERS=project_name='Card fraud' license=MIT containers=none", f"INTO={tmp_path}/new/folder"]
    with_this_python = [f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.ready"]

    run = make(ROOT, "bake", *with_this_python, *given)

    project = tmp_path / "new/folder/card_fraud"
    assert run.returncode == 0, run.stderr
    assert "cd card_fraud" in run.stdout
    assert [path.name for path in tmp_path.rglob("card_fraud")] == ["card_fraud"]
    assert (project / "README.md").read_text(encoding="utf-8").startswith("# Card fraud\n")
    assert (project / "LICENSE").read_text(encoding="utf-8").startswith("MIT License\n")
    assert not (project / "Dockerfile").exists()
    (project / "README.md").write_text("mine", encoding="utf-8")
    again = make(ROOT, "bake", *with_this_python, *given)
    assert again.returncode != 0
    assert "already exists" in again.stdout + again.stderr
    assert (project / "README.md").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_workflow_runs_commands_that_exist(path: Path) -> None:
    """The same ones as by hand."""
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    makefile = goals(path.parents[0 if path.name == ".gitlab-ci.yml" else 2])

    commands = re.findall(r"(?:run:|-) make (\S+)", text)
    commands += re.findall(r"^make (\S+)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    assert [goal for goal in commands if not re.search(rf"^{goal}:", makefile, re.MULTILINE)] == []


def test_ci_ends_with_the_container_tests_and_the_image_on_one_engine() -> None:
    """To start an engine twice takes a minute more."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert re.findall(r"ci/containers\.sh run (.*)", script) == ["make container-test image-test"]
    assert script.rstrip().endswith("make container-test image-test")


@pytest.mark.parametrize("path", [*WORKFLOWS[:2], SETUP], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_workflow_pins_its_actions_by_commit(path: Path) -> None:
    """A tag can be moved by others."""
    uses = re.findall(r"uses: (?!\./)(\S+)", path.read_text(encoding="utf-8"))

    assert uses
    assert [action for action in uses if not re.search(r"@[0-9a-f]{40}$", action)] == []


def goals(folder: Path) -> str:
    """Read the Makefile with what it includes."""
    parts = [folder / "Makefile", *folder.glob("*.mk")]
    return "".join(path.read_text(encoding="utf-8") for path in parts)


def make(folder: Path, *arguments: str, path: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user does, not as a child of the make that runs these tests."""
    inherited = {name: value for name, value in outside_make().items() if name != "JAVA_HOME"}
    inherited |= {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = ["make", "--no-print-directory", "-C", str(folder), *arguments]
    return subprocess.run(command, env=inherited, check=False, capture_output=True, text=True)
