"""The packed job on a real standalone cluster: master, workers, executors and driver are processes of their own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.armed import Faults
from tests.support.job import new_app
from tests.support.kafka import wait_until
from tests.support.running import JOB_SECONDS
from tests.support.spark_cluster import SparkCluster, packed

from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.local.broker import Broker

# What the killed executor leaves open is fenced by its successor; nobody waits for the time-out.
QUICK = {"timeout_ms": 10_000, "chunk_seconds": 2.0}


@pytest.mark.timeout(600)
def test_a_submitted_job_is_exact_when_its_executor_is_killed_in_mid_transaction(
    broker: Broker, tmp_path: Path
) -> None:
    faults = Faults(tmp_path)
    checkpoint = f"file:{tmp_path}/checkpoint"  # a URI of Hadoop's, which is no path of Python's
    app = new_app(broker.bootstrap, tmp_path, spark={"checkpoint": checkpoint}, transaction=QUICK)
    app.send(600)
    faults.arm("after lane record", "wait")
    with SparkCluster(tmp_path) as cluster:
        environ = cluster.environ(packed(tmp_path / "package"), faults.environ)
        with app.start(environ=environ) as job:
            job.wait_for("a lane is in mid transaction", faults.struck)
            struck = faults.struck()
            assert struck is not None
            assert struck not in tree(job.pid), "the lanes are written by executors, not by the driver"
            executor = cluster.executor_of(struck)
            faults.disarm()
            signal_all(tree(executor), signal.SIGKILL)
            job.wait_for_progress(sum(app.ends().values()))
            wait_until(lambda: cluster.executors() and executor not in cluster.executors(), what="another executor")
            job.send(signal.SIGTERM)
            assert job.wait(JOB_SECONDS) == 0, job.log
    assert list((tmp_path / "checkpoint/offsets").iterdir())
    app.assert_exact()
