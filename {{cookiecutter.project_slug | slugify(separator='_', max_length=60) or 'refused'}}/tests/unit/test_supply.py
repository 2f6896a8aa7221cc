"""The lock files hold all that pyproject.toml asks for, with hashes; the bill of materials names what the image has."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from supply import update
from supply.lock import LOCKS, ROOT, wanted
from supply.sbom import bill

from pipeline.errors import PipelineError
from pipeline.local import jars
from pipeline.local.jars import read_pins

PIN = re.compile(r"^(?P<pin>[^\s#].*?) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
LOCK = Path(ROOT, "requirements.lock").read_text(encoding="utf-8").splitlines()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins(lock: str) -> dict[str, list[Requirement]]:
    """Return the pins of a lock file by name; some have one for each Python."""
    found: dict[str, list[Requirement]] = {}
    for match in PIN.finditer(Path(ROOT, lock).read_text(encoding="utf-8")):
        pin = Requirement(match["pin"])
        found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_a_pin_with_hashes(lock: str) -> None:
    text = Path(ROOT, lock).read_text(encoding="utf-8")
    assert PIN.sub("", text) == f"{LOCKS[lock]}\n"
    assert all(re.fullmatch(r"==[^,*]+", str(pin.specifier)) for found in pins(lock).values() for pin in found)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_satisfies_pyproject(lock: str) -> None:
    """After a change of pyproject.toml: `make lock`."""
    locked = pins(lock)
    for line in wanted(PYPROJECT, image=lock == "requirements.lock"):
        asked = Requirement(line)
        for pin in locked[canonicalize_name(asked.name)]:
            version = str(pin.specifier).removeprefix("==")
            assert asked.specifier.contains(version), f"{asked} is locked as {version}: make lock"


def test_what_is_in_the_image_is_what_the_tests_ran_on() -> None:
    image, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert image.keys() <= dev.keys()
    assert {name: {str(pin) for pin in found} for name, found in image.items()} == {
        name: {str(pin) for pin in dev[name]} for name in image
    }


def test_the_bill_of_materials_names_what_the_image_has_and_nothing_else_each_with_its_hash() -> None:
    made = bill()
    parts = {part["purl"]: part for part in made["components"]}
    named = [part for purl, part in parts.items() if purl.startswith("pkg:pypi/")]
    locked = pins("requirements.lock")
    everywhere = {name for name, found in locked.items() if found[0].marker is None} - {"setuptools"}
    names = [part["name"] for part in named]
    assert len(names) == len(set(names)), "one version of each"
    assert everywhere <= set(names) <= locked.keys() - {"setuptools"}
    assert ("colorama" in names) == (sys.platform == "win32"), "what only another system needs is not in the image"
    [numpy] = [pin for pin in locked["numpy"] if pin.marker is None or pin.marker.evaluate()]
    assert f"pkg:pypi/numpy@{str(numpy.specifier).removeprefix('==')}" in parts
    assert all(part["externalReferences"][0]["hashes"] for part in named)
    assert {entry["ref"] for entry in made["dependencies"]} >= {part["bom-ref"] for part in parts.values()}
    gone = {f"requirements-L{number}" for number, line in enumerate(LOCK, 1) if line.startswith("setuptools==")}
    assert not gone & {entry["ref"] for entry in made["dependencies"]}
    for coordinate, sha256 in read_pins()["spark"].sha256.items():
        group, name, version = coordinate.split(":")
        assert parts[f"pkg:maven/{group}/{name}@{version}?type=jar"]["hashes"][0]["content"] == sha256


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return lock files and pins that a test may change."""
    copies = [tmp_path / path.name for path in update.FILES]
    for path, copy in zip(update.FILES, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(update, "FILES", tuple(copies))
    monkeypatch.setattr(jars, "PINS", copies[-1])
    return copies


def test_an_update_that_stops_half_way_leaves_all_files_as_they_were(files: list[Path]) -> None:
    before = [path.read_bytes() for path in files]

    def half() -> None:
        for path in files[:2]:
            path.write_text("newer", encoding="utf-8")

    def stop() -> None:
        msg = "no such package"
        raise update.Stopped(msg)

    with pytest.raises(update.Stopped, match="no such package"):
        update.update(half, stop)
    assert [path.read_bytes() for path in files] == before

    update.update(half)
    assert [path.read_text(encoding="utf-8") for path in files[:2]] == ["newer", "newer"]


def test_jars_that_are_not_to_be_had_stop_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        msg = "no repository answers"
        raise PipelineError(msg)

    monkeypatch.setattr(jars, "pin", unreachable)
    with pytest.raises(update.Stopped, match="no repository answers"):
        update.pinned()


def test_a_jar_whose_version_stays_must_keep_its_checksum(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate, sha256 = next(iter(update.checksums().items()))
    text = files[-1].read_text(encoding="utf-8")

    monkeypatch.setattr(jars, "pin", lambda: files[-1].write_text(text.replace(sha256, "0" * 64), encoding="utf-8"))
    with pytest.raises(update.Stopped, match=f"another file than before for {coordinate}: do not trust it"):
        update.update(update.pinned)
    assert files[-1].read_text(encoding="utf-8") == text

    newer = text.replace(coordinate, "a:new:1")
    monkeypatch.setattr(jars, "pin", lambda: files[-1].write_text(newer, encoding="utf-8"))
    update.update(update.pinned)
    assert files[-1].read_text(encoding="utf-8") == newer
