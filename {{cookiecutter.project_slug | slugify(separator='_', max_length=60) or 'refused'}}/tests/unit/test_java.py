"""Finding Java: the right one is taken, and every wrong one is told in one line that says what to install."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.errors import PipelineError
from pipeline.local.java import java

if TYPE_CHECKING:
    from pathlib import Path


def fake(home: Path, says: str, code: int = 0) -> str:
    """Make a `java` that prints its version like the real one: on the standard error."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for a machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    return tmp_path


@pytest.mark.parametrize(
    "says",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'openjdk version "25-ea" 2025-09-16',
        'Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "17.0.15" 2025-04-15',
        'java version "21.0.2" 2024-01-16 LTS',
    ],
)
def test_a_new_enough_java_on_the_path_is_taken(machine: Path, says: str) -> None:
    expected = fake(machine / "path", says)
    assert java() == expected


def test_java_home_wins_over_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(machine / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    expected = fake(machine / "home", 'openjdk version "21.0.1"')
    assert java() == expected


@pytest.mark.parametrize(
    ("says", "major"),
    [('java version "1.8.0_391"', 8), ('openjdk version "11.0.22"', 11), ('openjdk version "16"', 16)],
)
def test_an_old_java_is_refused_with_what_to_install(machine: Path, says: str, major: int) -> None:
    fake(machine / "path", says)
    with pytest.raises(PipelineError, match=f"Java {major} at .* is too old, 17 or newer is needed: install Java 17"):
        java()


def test_no_java_at_all_is_one_line_that_says_what_to_install(machine: Path) -> None:
    assert machine.exists()
    with pytest.raises(PipelineError, match=r"no Java found .*: install Java 17 or 21") as told:
        java()
    assert "\n" not in str(told.value)


def test_a_java_home_without_java_is_told_even_if_the_path_has_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark would take JAVA_HOME as well, and fail with a riddle.
    fake(machine / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    with pytest.raises(PipelineError, match=r"JAVA_HOME is .*gone, but .* is not a program: install Java 17"):
        java()


def test_a_java_that_does_not_start_is_told(machine: Path) -> None:
    fake(machine / "path", "Unable to locate a Java Runtime.", code=1)
    with pytest.raises(PipelineError, match=r"does not start .*: install Java 17"):
        java()


def test_a_program_that_is_not_java_is_told(machine: Path) -> None:
    fake(machine / "path", "hello")
    with pytest.raises(PipelineError, match="does not tell its version: install Java 17"):
        java()
