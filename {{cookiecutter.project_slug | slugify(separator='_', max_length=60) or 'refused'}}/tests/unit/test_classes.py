"""The archive of Spark's classes: taken where it is, made whole or not at all, and never needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.local import classes

JAVA = "/opt/java/bin/java"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the archive belongs, in an environment of its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(classes, "jars", lambda _: [])
    monkeypatch.setattr(classes, "java", lambda: JAVA)
    return classes.archive(JAVA)


def test_java_is_told_of_an_archive_only_where_there_is_one(place: Path) -> None:
    assert not classes.java_options(JAVA)
    place.touch()
    assert f"-XX:SharedArchiveFile={place} " in classes.java_options(JAVA)


def test_another_java_has_another_archive(place: Path) -> None:
    assert classes.archive("/opt/other/bin/java") != place


def test_a_path_that_would_end_the_option_is_not_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a b"))
    spaced = classes.archive(JAVA)
    spaced.touch()
    assert spaced.name == place.name
    assert not classes.java_options(JAVA)


def stub(monkeypatch: pytest.MonkeyPatch, *, fails: str = "") -> list[str]:
    """Put programs in place of Python and Java, of which one may fail; return which were run."""
    ran = []

    def run(command: tuple[str, ...], **_: object) -> None:
        ran.append(command[0])
        if command[0] == sys.executable:
            Path(command[-1].split()[0].partition("=")[2]).write_text("classes", encoding="utf-8")
        if command[0] == fails:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_what_is_made_is_tried_and_then_appears_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = stub(monkeypatch)
    assert classes.make() == place
    assert classes.make() == place
    assert ran == [sys.executable, JAVA]
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("fails", ["Python", "Java"])
def test_what_cannot_be_made_or_taken_leaves_nothing_and_fails_nothing(
    fails: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, fails={"Python": sys.executable, "Java": JAVA}[fails])
    with pytest.raises(PipelineError, match="each start takes some seconds longer"):
        classes.make()
    classes.main()
    assert "no archive" in capsys.readouterr().err
    assert not list(place.parent.iterdir())
