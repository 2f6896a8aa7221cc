"""The jars: fetched once, checked against the pins, whole or not at all, and never fetched again.

Java is played by a small program that answers like Ivy, so that all else is the real thing, without JVM and network.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import PipelineError
from pipeline.local import jars as module
from pipeline.local.jars import cache, jars, pin, read_pins

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOTS = ("org.example:one:1.0", "org.example:two:2.0-3")
EXTRA = "org.example:dependency:9"

# Adds EXTRA when it is asked for dependencies too; INVENT, LACK, MANGLE and FAIL make it misbehave.
IVY = """#!{python}
import os, pathlib, re, sys, time
if sys.argv[1] == "-version":
    sys.exit(print('openjdk version "17.0.1"', file=sys.stderr))
option = dict(zip(sys.argv, sys.argv[1:]))
with open(os.environ["CALLS"], "a") as calls:
    calls.write(option["-ivy"] + "\\n")
time.sleep(float(os.environ.get("SECONDS", 0)))
kept = pathlib.Path(option["-cache"], "downloaded")
print("kept from before:", kept.exists())
kept.touch()
asked = pathlib.Path(option["-ivy"]).read_text()
found = re.findall(r'org="(.*?)" name="(.*?)" rev="(.*?)"', asked)
if 'transitive="true"' in asked:
    found.append({extra})
found = [jar for jar in found if jar[1] not in os.environ.get("LACK", "-")]
if "INVENT" in os.environ:
    found.append(("org.example", "invented", "6"))
for org, name, rev in found:
    path = pathlib.Path(option["-retrieve"].replace("[organisation]", org).replace("[artifact]", name)
        .replace("[revision]", rev).replace("[ext]", "jar"))
    path.parent.mkdir(parents=True)
    path.write_text("jar of " + ":".join((org, name, rev)) + os.environ.get("MANGLE", ""))
    print("....... (2048kB)\\n.. (0kB)\\n\\t[SUCCESSFUL ] %s#%s;%s!%s.jar (12ms)" % (org, name, rev, name), flush=True)
if "FAIL" in os.environ:
    print("Server access error at url somewhere")
    sys.exit(1)
"""


def checksum(coordinate: str) -> str:
    """Return the SHA-256 of what the played Ivy delivers."""
    return hashlib.sha256(f"jar of {coordinate}".encode()).hexdigest()


def pins_text(listed: Sequence[str]) -> str:
    """Return a pin file with one conf."""
    head = f"# a comment\n[example]\nroots = {list(ROOTS)!r}\ntransitive = true\nleave_out = ['nothing']\n\n"
    table = "".join(f'"{coordinate}" = "{checksum(coordinate)}"\n' for coordinate in listed)
    return f"{head}{module.MARK}\n[sha256.example]\n{table}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with its own pins, cache and Java."""
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(IVY.format(python=sys.executable, extra=tuple(EXTRA.split(":"))))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PIPELINE_JARS", str(tmp_path / "cache"))
    (tmp_path / "pins.toml").write_text(pins_text([*ROOTS, EXTRA]))
    monkeypatch.setattr(module, "PINS", tmp_path / "pins.toml")
    return tmp_path


def calls(machine: Path) -> int:
    """Return how often Ivy was run."""
    path = machine / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def folders(machine: Path) -> list[str]:
    """Return the folders of the cache that a user of the jars could meet."""
    return [path.name for path in (machine / "cache").iterdir() if not path.name.startswith(".")]


def test_the_first_use_fetches_every_pinned_jar_with_progress(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = jars("example")
    assert [jar.name for jar in found] == ["dependency-9.jar", "one-1.0.jar", "two-2.0-3.jar"]
    assert [jar.read_text() for jar in found] == [f"jar of {name}" for name in (EXTRA, *ROOTS)]
    assert calls(machine) == 1
    said = capsys.readouterr().err
    assert "example jars: 3 of 3, 6 MB" in said
    assert f"all 3 match their checksums, kept in {found[0].parent}" in said


def test_later_uses_need_neither_java_nor_network(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jars("example")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    assert jars("example") == first
    assert calls(machine) == 1


@pytest.mark.parametrize(
    ("misbehave", "why"),
    [
        ({"MANGLE": "!"}, f"{ROOTS[0]} has SHA-256 [0-9a-f]{{64}}, pinned is {checksum(ROOTS[0])}"),
        ({"LACK": "two"}, f"{ROOTS[1]} is missing"),
        ({"INVENT": "1"}, "org.example:invented:6 is not listed"),
    ],
)
def test_jars_that_are_not_the_pinned_ones_are_refused_and_not_kept(
    machine: Path, monkeypatch: pytest.MonkeyPatch, misbehave: dict[str, str], why: str
) -> None:
    with monkeypatch.context() as patch:
        for name, value in misbehave.items():
            patch.setenv(name, value)
        with pytest.raises(PipelineError, match=f"(?s){why}.*Nothing was kept. Run again"):
            jars("example")
    assert folders(machine) == []
    assert not (machine / "cache" / ".example-in-work").exists()
    assert len(jars("example")) == 3


def test_a_fetch_that_fails_tells_why_and_the_next_one_goes_on(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("FAIL", "1")
        with pytest.raises(PipelineError, match=r"(?s)fetching the example jars failed.*PIPELINE_MAVEN.*Server access"):
            jars("example")
    assert folders(machine) == []
    with monkeypatch.context() as patch:
        patch.setenv("FAIL", "1")
        with pytest.raises(PipelineError, match="kept from before: True"):
            jars("example")
    assert len(jars("example")) == 3


def test_a_jar_changed_in_the_cache_is_told_with_what_to_do(machine: Path) -> None:
    folder = jars("example")[0].parent
    (folder / "one-1.0.jar").write_text("shorter")
    (folder / "more-1.jar").touch()
    (folder / "two-2.0-3.jar").unlink()
    said = rf"the jars in {folder} were changed \(more-1.jar, one-1.0.jar, two-2.0-3.jar\): delete that folder"
    with pytest.raises(PipelineError, match=said):
        jars("example")
    assert calls(machine) == 1


def test_other_pins_lie_in_another_folder(machine: Path) -> None:
    before = jars("example")
    (machine / "pins.toml").write_text(pins_text(ROOTS))
    after = jars("example")
    assert len(after) == 2
    assert after[0].parent != before[0].parent
    assert before[0].exists()


def test_two_processes_at_once_fetch_once_and_both_get_the_jars(machine: Path) -> None:
    code = (
        "import pathlib, sys; from pipeline.local import jars;"
        "jars.PINS = pathlib.Path(sys.argv[1]); print(len(jars.jars('example')))"
    )
    environment = {**os.environ, "SECONDS": "0.5", "PYTHONPATH": str(Path(module.__file__).parents[2])}
    command = [sys.executable, "-c", code, str(machine / "pins.toml")]
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=30) for process in both]
    assert [out for out, _ in told] == ["3\n", "3\n"]
    assert calls(machine) == 1


def test_pinning_rewrites_the_checksums_and_nothing_else(machine: Path) -> None:
    path = machine / "pins.toml"
    right = path.read_text()
    path.write_text(right.replace(checksum(EXTRA), "0" * 64).replace(f'"{ROOTS[1]}" = ', '"org.example:two:1" = '))
    pin()
    assert read_pins()["example"].sha256 == {coordinate: checksum(coordinate) for coordinate in (*ROOTS, EXTRA)}
    assert path.read_text().partition(module.MARK)[0] == right.partition(module.MARK)[0]
    assert len(jars("example")) == 3


def test_a_conf_without_checksums_says_how_to_pin(machine: Path) -> None:
    (machine / "pins.toml").write_text(pins_text([]))
    with pytest.raises(PipelineError, match=r"no checksums for example in pins\.toml: run python -m .* --pin"):
        jars("example")


def test_a_mirror_is_used_where_one_is_set(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_MAVEN", 'https://mirror.example/m2?a=1&b="2"')
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(PipelineError):
        jars("example")
    settings = (machine / "cache" / ".example-in-work" / "ivy" / "ivysettings.xml").read_text()
    assert """root='https://mirror.example/m2?a=1&amp;b="2"'""" in settings


def test_the_cache_is_outside_the_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIPELINE_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert cache() == Path("/var/cache/someone/pipeline/jars")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache() == Path.home() / ".cache" / "pipeline" / "jars"
    monkeypatch.setenv("PIPELINE_JARS", "/srv/jars")
    assert cache() == Path("/srv/jars")


def test_the_pin_file_lists_each_jar_once_with_its_checksum() -> None:
    for conf in read_pins().values():
        assert set(conf.roots) <= conf.sha256.keys()
        assert all(len(checksum) == 64 and int(checksum, 16) for checksum in conf.sha256.values())
        names = [coordinate.rsplit(":", 1)[0] for coordinate in conf.sha256]
        assert len(names) == len(set(names))


def test_the_spark_jars_are_the_four_that_pyspark_lacks_and_of_its_version() -> None:
    pinned = dict(coordinate.rsplit(":", 1) for coordinate in read_pins()["spark"].sha256)
    assert len(pinned) == 4
    connector = {rev for name, rev in pinned.items() if name.startswith("org.apache.spark:")}
    assert connector == {version("pyspark")}
