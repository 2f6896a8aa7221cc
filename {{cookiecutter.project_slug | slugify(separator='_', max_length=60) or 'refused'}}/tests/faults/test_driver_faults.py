"""E1, E7 and E9: the driver is killed around its logs, started twice, or of another version; the output stays exact."""

from __future__ import annotations

import re
import shutil
import signal
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import Arena, arena, shared
from tests.support.job import App, new_app
from tests.support.kafka import read_committed, wait_until
from tests.support.running import JOB_SECONDS, ROOT, Running

from pipeline.errors import SafeStop
from pipeline.lanes.recall import recall
from pipeline.lanes.record import TOKEN_VERSION, VERSION, decode, lane_key
from pipeline.lanes.takeover import fence, write_record
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.arena import Evidence
    from tests.support.proxy import ProxiedBroker


@pytest.fixture
def app(proxied: ProxiedBroker, tmp_path: Path) -> App:
    """Return a fresh app with events."""
    app = new_app(proxied.bootstrap, tmp_path)
    app.send(300)
    return app


@pytest.fixture(scope="module")
def arenas(proxied: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Arena]]:
    """Return what gives the arena: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("driver")
    # A pause between batches: there is a time at which the commit log is written and the next batch not begun.
    with shared(lambda: arena(proxied, folder, spark={"trigger_seconds": 1.0})) as give:
        yield give


# Where the driver is killed, and by how much its offset log is then ahead of its commit log.
PLACES = {"before query": 0, "before batch": 1, "after batch": 1, "after the commit log": 0}


@pytest.mark.long
@pytest.mark.fault("E1")
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_killed_around_its_logs_goes_on_exactly(
    arenas: Callable[[], Arena], evidence: Evidence, place: str
) -> None:
    used = arenas()
    used.evidence, used.broken = evidence, True
    used.watch(used.caught_up, what="the job runs")
    ahead = []
    if place == "after the commit log":
        done = used.app.newest("commits")
        used.work(evidence.seed)
        used.watch(
            lambda: used.app.newest("commits") > done and between_batches(used.app),
            what="a batch is in the commit log",
        )
        used.running.send(signal.SIGKILL)
    else:
        used.faults.arm(place, "kill driver", nth=1 if place == "before query" else 1 + evidence.seed % 3)
        if place == "before query":
            used.kill()
        used.work(evidence.seed)
        used.watch(used.faults.struck, what="the driver is killed")
    ahead.append(used.app.newest("offsets") - used.app.newest("commits"))
    used.assert_recovered()
    assert ahead == [PLACES[place]]
    assert evidence.restarts > 0


def between_batches(app: App) -> bool:
    """Tell whether every batch that was begun is in the commit log."""
    return app.newest("offsets") == app.newest("commits")


@pytest.mark.long
@pytest.mark.fault("E7")
def test_of_two_copies_on_one_checkpoint_one_survives(
    proxied: ProxiedBroker, tmp_path: Path, evidence: Evidence
) -> None:
    app = new_app(proxied.bootstrap, tmp_path, transaction={"chunk_rows": 50}, source={"max_offsets_per_trigger": 200})
    app.send(1_000, seed=evidence.seed)
    with ExitStack() as exits:
        copies = [exits.enter_context(app.start())]
        copies[0].wait_for_progress(200)
        copies.append(exits.enter_context(app.start()))
        seeds = count(evidence.seed + 1)

        def one_is_left() -> bool:
            """Supervise both: one that was replaced is not started again; each that ends says why in one line."""
            if app.lag() == 0:  # without news, an older copy does not notice that it was replaced
                app.send(50, seed=next(seeds))
            for ended in [copy for copy in copies if copy.poll() is not None]:
                copies.remove(ended)
                assert re.fullmatch(LAST_LINES[ended.wait()], line_of(ended)), ended.log
                if ended.wait() != REPLACED:
                    evidence.restarts += 1
                    copies.append(exits.enter_context(app.start()))
            return len(copies) == 1

        wait_until(one_is_left, JOB_SECONDS, "one is left")
        (survivor,) = copies
        survivor.wait_for("it has caught up", lambda: app.lag() == 0)
        survivor.send(signal.SIGTERM)
        assert survivor.wait() == 0, survivor.log
    app.assert_exact()


REPLACED = 4
# What a copy may end with, by its exit code.
LAST_LINES = {
    1: r"error: another job writes to the checkpoint folder \(.+\): stop one of them, or give each its own .+",
    REPLACED: r"error: replaced by run \d+: lane \S+ was taken over .+",
}


def line_of(ended: Running) -> str:
    """Return the one line by which a job that failed said why: its last, and no log."""
    (line,) = [line for line in ended.log.splitlines() if not line.startswith(("time=", "WARNING: Using incubator"))]
    return line


def other_version(folder: Path, version: str) -> dict[str, str]:
    """Copy the product under another version; returns the environment of a job that runs it."""
    source = shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    package = source / "pipeline" / "__init__.py"
    text, count = re.subn(r'__version__ = ".*"', f'__version__ = "{version}"', package.read_text(encoding="utf-8"))
    assert count == 1
    package.write_text(text, encoding="utf-8")
    return {"PYTHONPATH": f"{source}:{ROOT}"}


@pytest.mark.long
@pytest.mark.fault("E9")
def test_a_job_of_another_version_is_continued_exactly_on_its_live_checkpoint(
    proxied: ProxiedBroker, tmp_path: Path, evidence: Evidence
) -> None:
    app = new_app(proxied.bootstrap, tmp_path, transaction={"chunk_rows": 50}, source={"max_offsets_per_trigger": 200})
    app.send(2_000, seed=evidence.seed)
    with app.start(environ=other_version(tmp_path, "0.0.9")) as earlier:
        earlier.wait_for_progress(200)
        earlier.wait_for_open_transaction()
        signal_all(tree(earlier.pid), signal.SIGKILL)
        earlier.wait()
    assert app.newest("offsets") >= 0
    app.run()
    app.assert_exact()
    versions = [
        decode(record.value or b"").code_version for record in read_committed(app.bootstrap, app.settings.lane_topic)
    ]
    assert versions.count("0.0.9") > 2
    assert versions[-1] != "0.0.9"


@pytest.mark.fault("E9")
def test_a_lane_record_of_a_newer_form_stops_the_job_and_is_left_alone(app: App) -> None:
    app.run()
    settings = app.settings
    key = lane_key(settings.app.id, app.topic, 0)
    before = recall(app.bootstrap, settings.lane_topic, 0, key)
    newer = bytes((TOKEN_VERSION + 1,)) + before.value[1:] + b"of the future"
    write_record(settings, fence(settings, 0), 0, newer, before.end)
    with pytest.raises(SafeStop) as stopped:
        app.run()
    assert str(stopped.value) == (
        f"lane record {key.decode()}: version {TOKEN_VERSION + 1}, but this code reads versions {VERSION} and "
        f"{TOKEN_VERSION}; "
        "run the code version that wrote it or a newer one, do not delete the record"
    )
    assert recall(app.bootstrap, settings.lane_topic, 0, key).value == newer
