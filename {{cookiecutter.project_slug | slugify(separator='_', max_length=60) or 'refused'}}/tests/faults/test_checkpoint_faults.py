"""E4 to E6: the checkpoint is ahead of Kafka, damaged, full or read-only, and the job stops with what to do.

Cases that other tests show already carry their mark there: E2, E3 and E8 in `tests/integration`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.disks import fill, small_disk
from tests.support.job import App, new_app

from pipeline.errors import SafeStop
from pipeline.flow.checkpoint import BESIDE, LOCAL
from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.proxy import ProxiedBroker


@pytest.fixture
def app(proxied: ProxiedBroker, tmp_path: Path) -> App:
    """Return a fresh app with events."""
    app = new_app(proxied.bootstrap, tmp_path)
    app.send(300)
    return app


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "bad JSON": lambda data: data.replace(b"{", b"["),
}


@pytest.fixture(scope="module")
def stopped_app(proxied: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> App:
    """Return an app that has run, with more to read; each test leaves its checkpoint as it was."""
    app = new_app(proxied.bootstrap, tmp_path_factory.mktemp("stopped"))
    app.send(300)
    app.run()
    app.send(100, seed=2)
    return app


@contextmanager
def damaged(path: Path, damage: Callable[[bytes], bytes], *, checksum: bool) -> Iterator[None]:
    """Damage a file, with or without its checksum, for as long as the block lasts."""
    crc = path.with_name(f".{path.name}.crc")
    sound = {file: file.read_bytes() for file in (path, crc) if file.exists()}
    path.write_bytes(damage(sound[path]))
    if not checksum:
        crc.unlink(missing_ok=True)
    yield
    for file, data in sound.items():
        file.write_bytes(data)


def assert_refused(app: App, path: Path) -> None:
    """Demand that the job stops, with one line that names the file and the remedy."""
    with pytest.raises(SafeStop) as stopped:
        app.run()
    line = str(stopped.value)
    assert re.match(rf"checkpoint file {re.escape(str(path))} is damaged \(.+\): ", line), line
    assert line.endswith(f"delete the checkpoint folder ({app.checkpoint}) and start again")
    assert "\n" not in line


@pytest.mark.fault("E5")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("log", ["offsets", "commits", "metadata"])
def test_a_damaged_file_of_the_checkpoint_stops_the_job_and_is_named(stopped_app: App, log: str, damage: str) -> None:
    folder = stopped_app.checkpoint
    path = folder / log if log == "metadata" else folder / log / str(stopped_app.newest(log))
    with damaged(path, DAMAGES[damage], checksum=False):
        assert_refused(stopped_app, path)


@pytest.mark.fault("E5")
def test_a_file_of_the_checkpoint_that_differs_from_its_checksum_stops_the_job(stopped_app: App) -> None:
    path = stopped_app.checkpoint / "offsets" / str(stopped_app.newest("offsets"))
    with damaged(path, lambda data: data.replace(b"1", b"2"), checksum=True):
        assert_refused(stopped_app, path)


@pytest.mark.fault("E5")
def test_a_batch_that_was_planned_only_and_damaged_stops_the_job(stopped_app: App) -> None:
    path = stopped_app.checkpoint / "offsets" / str(stopped_app.newest("offsets") + 1)
    path.write_bytes(b"v1\n")
    try:
        assert_refused(stopped_app, path)
    finally:
        path.unlink()


@pytest.mark.fault("E5")
def test_what_the_line_on_a_damaged_file_says_to_do_makes_the_job_go_on_exactly(app: App) -> None:
    app.run()
    app.send(100, seed=2)
    path = app.checkpoint / "commits" / str(app.newest("commits"))
    path.write_bytes(b"")
    assert_refused(app, path)
    shutil.rmtree(app.checkpoint)
    app.run()
    app.assert_exact()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 200 kB, mounted for one test; only root may mount."""
    with small_disk(tmp_path / "disk", "200k") as place:
        yield place


@pytest.mark.fault("E6")
@pytest.mark.parametrize("trouble", ["full", "read-only", "full while it runs"])
def test_a_checkpoint_that_cannot_be_written_stops_the_job_with_its_folder(
    proxied: ProxiedBroker, tmp_path: Path, disk: Path, trouble: str
) -> None:
    small = {"max_offsets_per_trigger": 100}
    app = new_app(proxied.bootstrap, tmp_path, spark={"checkpoint": str(disk / "checkpoint")}, source=small)
    app.checkpoint.mkdir()
    app.send(300)
    if trouble == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)  # noqa: S607
    elif trouble == "full":
        fill(disk / "ballast")
    with pytest.raises(SafeStop) as stopped:
        app.run(lambda _job, _batch: fill(disk / "ballast"))
    line = str(stopped.value)
    assert f"checkpoint folder ({app.checkpoint})" in line
    assert ("Read-only file system" if trouble == "read-only" else "No space left on device") in line
    assert "\n" not in line
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)  # noqa: S607
    (disk / "ballast").unlink(missing_ok=True)
    app.run()
    app.assert_exact()


@pytest.mark.fault("E6")
def test_notes_beside_the_batches_that_find_no_room_stop_the_job_with_their_folder(
    proxied: ProxiedBroker, tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(proxied.bootstrap, tmp_path, spark={"checkpoint": ""}, source={"max_offsets_per_trigger": 100})
    app.send(300)
    monkeypatch.setitem(BESIDE, "asyncProgressTrackingCheckpointIntervalMs", "1")
    monkeypatch.setattr("pipeline.flow.job.location", lambda *_: f"{LOCAL}{disk}/checkpoint")
    told = r"Spark cannot write \(No space left on device\).*checkpoint folder \(temporary"
    with pytest.raises(SafeStop, match=told):
        app.run(lambda _job, _batch: fill(disk / "ballast"), until_caught_up=False)
    monkeypatch.undo()
    app.run()
    app.assert_exact()


@pytest.mark.long
@pytest.mark.fault("E4")
def test_a_cluster_restored_from_an_older_copy_stops_the_job_until_the_checkpoint_is_deleted(tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    with Broker(data) as broker:
        app = new_app(broker.bootstrap, tmp_path)
        app.send(300)
        app.run()
        broker.stop()
        shutil.copytree(data, tmp_path / "copy")
        broker.start()
        app.send(300, seed=2)
        app.run()
        broker.stop()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        broker.start()
        with pytest.raises(SafeStop, match=r"it is ahead of Kafka; delete its folder \(.+\) and start again"):
            app.run()
        shutil.rmtree(app.checkpoint)
        app.send(300, seed=3)
        app.run()
        app.assert_exact()
