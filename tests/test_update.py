"""A project made by cruft follows its template: the template's files change, the user's stay."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import PROJECT, ROOT

YOURS = [
    "CHANGELOG.md",
    "pipeline.toml",
    "schemas/payment.avsc",
    "src/pipeline/flow/transform.py",
    "src/pipeline/flow/windows.py",
]
THEIRS = ["Makefile", "src/pipeline/errors.py", ".github/workflows/ci.yml"]
AUTHOR = {f"GIT_{who}_{what}": "test@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """Copy the template and make it a repository."""
    folder = tmp_path / "template"
    folder.mkdir()
    for name in ("cookiecutter.json", "hooks", PROJECT.name):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    run(folder, "git", "init", "--quiet", "--initial-branch=main")
    commit(folder)
    return folder


def test_an_update_changes_the_templates_files_and_leaves_the_users(template: Path, tmp_path: Path) -> None:
    """As a user does it: create, work on it, the template moves on, check, update."""
    run(tmp_path, sys.executable, "-m", "cruft", "create", str(template), "--no-input", "--output-dir", "out")
    project = tmp_path / "out" / "payments_pipeline"
    run(project, "git", "init", "--quiet")
    for name in YOURS:
        append(project / name, "mine")
    commit(project)
    for name in [*YOURS, *THEIRS]:
        append(template / PROJECT.name / name, "new in the template")
    (template / PROJECT.name / "src/pipeline/added.py").write_text('"""New in the template."""\n', encoding="utf-8")
    commit(template)
    stale = run(project, sys.executable, "-m", "cruft", "check", check=False)

    run(project, sys.executable, "-m", "cruft", "update", "--skip-apply-ask")

    assert stale.returncode == 1
    for name in YOURS:
        text = (project / name).read_text(encoding="utf-8")
        assert text.endswith("mine\n")
        assert "new in the template" not in text
    for name in THEIRS:
        assert (project / name).read_text(encoding="utf-8").endswith("new in the template\n")
    assert (project / "src/pipeline/added.py").exists()
    assert run(project, sys.executable, "-m", "cruft", "check").returncode == 0
    assert not list(project.rglob("*.rej"))


def test_answers_survive_an_update(template: Path, tmp_path: Path) -> None:
    """Free text is stored by cruft and rendered again at each update: it must come out the same."""
    answers = '{"project_slug": "kept", "description": "a \\"b\\" \\\\ {c} $(id) 😀", "ci_provider": "none"}'
    (tmp_path / "answers.json").write_text(answers, encoding="utf-8")
    create = [sys.executable, "-m", "cruft", "create", str(template), "--no-input", "--output-dir", "out"]
    run(tmp_path, *create, "--extra-context-file", "answers.json")
    project = tmp_path / "out" / "kept"
    run(project, "git", "init", "--quiet")
    commit(project)
    append(template / PROJECT.name / "Makefile", "new in the template")
    commit(template)

    run(project, sys.executable, "-m", "cruft", "update", "--skip-apply-ask")

    assert run(project, "git", "status", "--short").stdout.split() == ["M", ".cruft.json", "M", "Makefile"]
    description = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"]
    assert description == 'a "b" \\ {c} $(id) 😀'
    assert not (project / ".github").exists()


def test_the_skip_list_names_files_that_exist() -> None:
    """A renamed file would lose its protection."""
    skip = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cruft"]["skip"]

    assert [name for name in skip if not (PROJECT / name).exists()] == []
    assert {Path(name).parts[0] if name.startswith("schemas") else name for name in YOURS} <= set(skip)


def append(path: Path, line: str) -> None:
    """Add a line at the end."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"# {line}\n")


def commit(folder: Path) -> None:
    """Commit all there is."""
    run(folder, "git", "add", "--all", "--force")
    run(folder, "git", "commit", "--quiet", "--message", "test")


def run(folder: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command there, without the user's settings for git and cookiecutter."""
    environment = {**os.environ, **AUTHOR, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done
