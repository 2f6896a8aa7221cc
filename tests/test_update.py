"""A project made by cruft follows its template: the template's files change, the user's stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from conftest import PROJECT, ROOT

if TYPE_CHECKING:
    from pathlib import Path

SKIP = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cruft"]["skip"]
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


@pytest.mark.parametrize("containers", ["docker", "kubernetes"])
def test_an_update_changes_the_templates_files_and_leaves_the_users(
    containers: str, template: Path, tmp_path: Path
) -> None:
    """As a user does it: create, work on it, the template moves on, check, update; with overlays and without."""
    project = created(template, tmp_path, containers=containers)
    for name in yours(project):
        append(project / name, "mine")
    commit(project)
    for name in [*yours(template / PROJECT.name), *THEIRS]:
        append(template / PROJECT.name / name, "new in the template")
    (template / PROJECT.name / "src/pipeline/added.py").write_text('"""New in the template."""\n', encoding="utf-8")
    (template / PROJECT.name / "docs/sizing.md").unlink()
    (template / PROJECT.name / "schemas/totals.avsc").unlink()
    commit(template)
    stale = cruft(project, "check", check=False)

    cruft(project, "update", "--skip-apply-ask")

    assert stale.returncode == 1
    assert any("overlays" in name for name in yours(project)) == (containers == "kubernetes")
    for name in yours(project):
        text = (project / name).read_text(encoding="utf-8")
        assert text.endswith("mine\n")
        assert "new in the template" not in text
    for name in THEIRS:
        assert (project / name).read_text(encoding="utf-8").endswith("new in the template\n")
    assert (project / "src/pipeline/added.py").exists()
    assert not (project / "docs/sizing.md").exists(), "what the template has deleted goes"
    assert (project / "schemas/totals.avsc").exists(), "unless it is yours"
    assert (project / "ops/kubernetes").exists() == (containers == "kubernetes")
    assert cruft(project, "check").returncode == 0
    assert not list(project.rglob("*.rej"))


def test_a_project_that_was_only_baked_can_be_linked_later(template: Path, tmp_path: Path, config: Path) -> None:
    """With the answers it was made with: they stand in no file of its own."""
    answers = {"license": "MIT", "containers": "none"}
    options = ["--no-input", "--config-file", str(config), "--output-dir", "out"]
    given = [f"{name}={answer}" for name, answer in answers.items()]
    run(tmp_path, sys.executable, "-m", "cookiecutter", *options, str(template), *given)
    project = tmp_path / "out" / "payments_pipeline"
    run(project, "git", "init", "--quiet")
    cruft(project, "link", str(template), "--no-input", "--extra-context", json.dumps(answers))
    append(project / "pipeline.toml", "mine")
    commit(project)
    assert "diff --git" not in cruft(project, "diff", "--exit-code").stdout, "what is linked is what was baked"
    append(template / PROJECT.name / "Makefile", "new in the template")
    append(template / PROJECT.name / "pipeline.toml", "new in the template")
    commit(template)

    cruft(project, "update", "--skip-apply-ask")

    assert changed(project) == {".cruft.json": "M", "Makefile": "M"}


def test_a_templates_file_that_the_user_has_edited_is_merged_and_never_overwritten(
    template: Path, tmp_path: Path
) -> None:
    """In another place both changes are there; in the same place git asks, with both versions in the file."""
    project = created(template, tmp_path)
    insert(project / "Makefile", "mine, at the top")
    append(project / "src/pipeline/errors.py", "mine, at the end")
    commit(project)
    append(template / PROJECT.name / "Makefile", "new in the template")
    append(template / PROJECT.name / "src/pipeline/errors.py", "new in the template")
    commit(template)

    told = cruft(project, "update", "--skip-apply-ask")

    makefile = (project / "Makefile").read_text(encoding="utf-8")
    assert makefile.startswith("# mine, at the top\n")
    assert makefile.endswith("# new in the template\n")
    asked = (project / "src/pipeline/errors.py").read_text(encoding="utf-8")
    assert "\n<<<<<<< ours\n# mine, at the end\n=======\n# new in the template\n>>>>>>> theirs\n" in asked
    assert changed(project) == {".cruft.json": "M", "Makefile": "M", "src/pipeline/errors.py": "UU"}
    assert "errors.py" in told.stderr


def test_answers_survive_an_update(template: Path, tmp_path: Path) -> None:
    """Free text is stored by cruft and rendered again at each update: it must come out the same."""
    text = 'a "b" \\ {c} $(id) 😀'
    project = created(template, tmp_path, project_slug="kept", description=text, ci_provider="none")
    append(template / PROJECT.name / "Makefile", "new in the template")
    commit(template)

    cruft(project, "update", "--skip-apply-ask")

    assert changed(project) == {".cruft.json": "M", "Makefile": "M"}
    assert project.name == "kept"
    assert tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"] == text
    assert not (project / ".github").exists()


def test_the_skip_list_names_files_that_exist() -> None:
    """A renamed file would lose its protection."""
    assert [name for name in SKIP if not (PROJECT / name).exists()] == []


def created(template: Path, into: Path, **answers: str) -> Path:
    """Make a project as a user of cruft does, and commit it."""
    (into / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    create = ["create", str(template), "--no-input", "--output-dir", "out", "--extra-context-file", "answers.json"]
    cruft(into, *create)
    [project] = (into / "out").iterdir()
    run(project, "git", "init", "--quiet")
    commit(project)
    return project


def yours(folder: Path) -> list[str]:
    """List the files that the skip list of the template protects, as far as a project has them."""
    found = [path for name in SKIP for path in (folder / name, *(folder / name).rglob("*")) if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in found]


def changed(project: Path) -> dict[str, str]:
    """Give what git says of each file that is not as it was committed."""
    lines = run(project, "git", "status", "--short", "--untracked-files=all").stdout.splitlines()
    return {line[3:]: line[:2].strip() for line in lines}


def insert(path: Path, line: str) -> None:
    """Add a line at the top."""
    path.write_text(f"# {line}\n{path.read_text(encoding='utf-8')}", encoding="utf-8")


def append(path: Path, line: str) -> None:
    """Add a line at the end."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"# {line}\n")


def commit(folder: Path) -> None:
    """Commit all there is."""
    run(folder, "git", "add", "--all", "--force")
    run(folder, "git", "commit", "--quiet", "--message", "test")


def cruft(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run cruft there."""
    return run(folder, sys.executable, "-m", "cruft", *arguments, check=check)


def run(folder: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command there, without the user's settings for git and cookiecutter."""
    environment = {**os.environ, **AUTHOR, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done
