"""How a job ends, and how it does not: signals, killed workers, a second copy, and a mistake in the user's code."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext
from pyspark.sql.functions import udf
from tests.support.job import STOP_SECONDS, App, failing, new_app, payments
from tests.support.kafka import wait_until
from tests.support.running import JOB_SECONDS

from pipeline.flow.job import GRACE_SECONDS
from pipeline.flow.shutdown import open_partitions
from pipeline.local.lookout import Lookout
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.local.broker import Broker

# Small transactions: a batch takes seconds, and most of the time one of them is open.
SMALL = {"chunk_rows": 20}
LINE = re.compile(
    r"time=\S+Z level=info (run=\d+ lanes=\d+|batch=\d+ seconds=[\d.]+ lanes=\d+|signal=SIG|stopped on request)"
)
TRACEBACK = "Traceback (most recent call last):"
# Of the Java machine itself, at its start; nothing switches it off.
MACHINE = "WARNING: Using incubator modules: jdk.incubator.vector"


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app with events."""
    app = new_app(broker.bootstrap, tmp_path, transaction=SMALL)
    app.send(1_000)
    return app


@pytest.mark.fault("A10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_job_that_is_told_to_stop_in_mid_batch_leaves_no_transaction_open(app: App, number: signal.Signals) -> None:
    with app.start() as job:
        job.wait_for_progress(100)
        job.wait_for_open_transaction()
        job.send(number, group=number == signal.SIGINT)
        asked = time.monotonic()
        assert job.wait() == 0, job.log
        assert time.monotonic() - asked < STOP_SECONDS
        said = [line for line in job.log.splitlines() if line != MACHINE]
    assert not open_partitions(app.settings)
    assert [line for line in said if not LINE.match(line)] == []
    assert f"signal={number.name}" in job.log
    assert app.lag() > 0, "it was to be stopped in the middle"
    app.run()
    app.assert_exact()


@pytest.mark.fault("A10")
@pytest.mark.parametrize("workers", [False, True], ids=["Java", "Java and workers, as systemd does"])
def test_a_job_whose_java_is_told_to_stop_with_it_ends_well_too(app: App, *, workers: bool) -> None:
    with app.start() as job:
        job.wait_for_progress(100)
        job.wait_for_open_transaction()
        if workers:
            signal_all(tree(job.pid), signal.SIGTERM)
        else:
            job.send(signal.SIGTERM, group=True)
        asked = time.monotonic()
        assert job.wait() == 0, job.log
        assert time.monotonic() - asked < STOP_SECONDS
        assert "level=info stopped on request\n" in job.log
        assert traces_of_the_driver(job.log) == []  # Spark tells of its own end, by traces of Java
    assert not open_partitions(app.settings)
    assert app.lag() > 0, "it was to be stopped in the middle"
    app.run()
    app.assert_exact()


def test_a_job_that_has_nothing_to_do_stops_at_once(app: App) -> None:
    with app.running() as job:
        wait_until(lambda: app.lag() == 0, JOB_SECONDS, "caught up")
        job.stop.set()
        asked = time.monotonic()
    assert time.monotonic() - asked < GRACE_SECONDS, "no batch was waited for"
    app.assert_exact()


def test_a_job_in_slow_user_code_stops_in_time_as_well(app: App, tmp_path: Path) -> None:
    called = str(tmp_path / "called")

    def slowly(name: str) -> str:
        Path(called).touch()
        time.sleep(0.1)  # as user code that asks some service does
        return name

    def transform(events: DataFrame) -> DataFrame:
        return payments(app.settings)(events.withColumn("account", udf(slowly)("account")))

    with app.running(transform) as job:
        wait_until(Path(called).exists, JOB_SECONDS, "the user's code is called")
        job.stop.set()
        asked = time.monotonic()
    assert time.monotonic() - asked < STOP_SECONDS
    assert not open_partitions(app.settings)
    app.run()
    app.assert_exact()


def test_killed_python_workers_are_replaced_and_the_job_goes_on(app: App) -> None:
    killed: list[int] = []

    def kill() -> None:
        with Lookout(app.settings) as lookout:
            wait_until(
                lambda: lookout.progress() > 100 and lookout.open_transactions(), JOB_SECONDS, "a transaction is open"
            )
        killed.extend(workers())
        signal_all(killed, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = app.run()
    killer.join()
    assert killed
    assert seen.run == 1, "nothing was started again but tasks"
    app.assert_exact()


def workers() -> list[int]:
    """Return the Python workers of this process's Spark: descendants of the daemons that its JVM started."""
    java = SparkContext._gateway.proc.pid  # noqa: SLF001  the one way to its process id
    return sorted({worker for daemon in tree(java)[1:] for worker in tree(daemon)[1:]})


@pytest.mark.fault("E7")
def test_of_two_copies_the_newer_wins_and_the_other_says_so(app: App, tmp_path: Path) -> None:
    newer = app.with_settings(spark={"checkpoint": str(tmp_path / "another")})
    ended = threading.Event()

    def send() -> None:
        for seed in range(2, 100):
            app.send(200, seed=seed)
            if ended.is_set():
                break

    sender = threading.Thread(target=send)
    with app.start() as older:
        older.wait_for_progress(100)
        sender.start()
        with newer.running():
            code = older.wait()
            ended.set()
            sender.join()
        assert code == 4, older.log
        assert re.match(r"error: replaced by run \d: lane \S+ was taken over", older.log.splitlines()[-1])
        assert [line for line in older.log.splitlines()[:-1] if line != MACHINE and not LINE.match(line)] == []
    newer.run()
    app.assert_exact()


def test_a_mistake_in_user_code_is_one_line_that_names_it(app: App) -> None:
    with app.start(failing) as job:
        assert job.wait() == 1
        *before, last = [line for line in job.log.splitlines() if line != MACHINE]
    assert re.fullmatch(r"error: a batch failed: KeyError: 'account-\d+' \(job.py, line \d+\)", last)
    # A worker that fails a moment after another one finds nobody to tell, and says so; the driver has no trace to show.
    said = "\n".join(line for line in before if not LINE.match(line))
    assert not said or said.startswith(TRACEBACK)
    assert traces_of_the_driver(said) == [], said
    assert not open_partitions(app.settings)
    app.run()
    app.assert_exact()


def traces_of_the_driver(log: str) -> list[str]:
    """Return what is shown of its stack; a worker whose Java has gone may show one as well."""
    return [trace for trace in log.split(TRACEBACK)[1:] if not re.search(r"pyspark[^\n]*(worker|daemon)", trace)]
