"""What the tests of the template share: where it lies, and how to bake it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cookiecutter.main import cookiecutter
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Bake = Callable[..., Path]

ROOT = Path(__file__).resolve().parents[1]
[PROJECT] = [path for path in ROOT.iterdir() if path.name.startswith("{{cookiecutter")]


# How long an example takes says something of the machine, not of the template.
settings.register_profile("template", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("template")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make golden`."""
    parser.addoption("--golden", action="store_true", help="write the golden listings anew instead of comparing")


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep cookiecutter away from its user's settings and replay files."""
    folder = tmp_path_factory.mktemp("config")
    file = folder / "config.yaml"
    file.write_text(f"cookiecutters_dir: {folder}/templates\nreplay_dir: {folder}/replay\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def bake(config: Path) -> Bake:
    """Give a function that bakes answers into a folder and returns the project's folder."""

    def run(into: Path, answers: Mapping[str, str] | None = None, **options: object) -> Path:
        into.mkdir(parents=True, exist_ok=True)
        made = cookiecutter(
            str(ROOT),
            no_input=True,
            extra_context=dict(answers or {}),
            output_dir=str(into),
            **{"config_file": str(config), **options},
        )
        return Path(made)

    return run


@pytest.fixture(scope="session")
def default_project(bake: Bake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bake the default answers once, for tests that only read."""
    return bake(tmp_path_factory.mktemp("default"))


def outside_make() -> dict[str, str]:
    """Give the environment without what the make that runs these tests hands down to its children."""
    handed_down = {
        "ANSWERS",
        "ARGS",
        "BUILD",
        "INTO",
        "MAKEFLAGS",
        "MAKELEVEL",
        "MAKEOVERRIDES",
        "MFLAGS",
        "PYTHON",
        "VENV",
        "WORKERS",
    }
    return {
        name: value
        for name, value in os.environ.items()
        if name not in handed_down and not name.startswith("PYTEST_XDIST")
    }


def files(folder: Path) -> list[str]:
    """List every file below a folder, and every empty folder with a slash behind it."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or path.is_file():
            found.append(name)
        elif not any(path.iterdir()):
            found.append(f"{name}/")
    return found
