"""The packed job on a standalone cluster, with three brokers: executors are killed and frozen, its output stays exact.

B1   an executor killed in mid transaction
B3   an executor frozen in mid transaction until it was given up, then resumed: a zombie; and a whole worker with it
E2   the checkpoint lost, with the whole job
G1   speculation on: a lane whose writer is frozen is written by a second attempt, then the first one goes on
H1   a machine lost: a worker killed with its executor
H2   the image's own driver and executor, with Spark's backend for Kubernetes
H3   the demo as anybody runs it, its job submitted: killed twice in mid transaction, its checkpoint deleted
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.arena import shared
from tests.support.cluster import NODES, Watched, watched
from tests.support.job import payments, speculating
from tests.support.kafka import wait_until
from tests.support.run_job import AS_POD
from tests.support.running import JOB_SECONDS
from tests.support.spark_cluster import EXECUTOR, HOST, ROOT, SparkCluster, packed

from pipeline.local.broker import Broker
from pipeline.local.node import free_ports
from pipeline.local.processes import signal_all, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.arena import Evidence

KILLS = 2
# A second attempt of a task is never started on the host of the first.
HOSTS = (HOST, "127.0.0.2")

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Broker]:
    with Broker(nodes=NODES) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), HOSTS) as running:
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def jobs(
    brokers: Broker, cluster: SparkCluster, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Watched]]:
    """Return what gives the job: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("submitted")

    def made() -> Watched:
        arena = watched(brokers, folder)
        arena.environ = cluster.environ(package, arena.faults.environ)
        return arena

    with shared(made) as give:
        yield give


@pytest.fixture
def used(cluster: SparkCluster, jobs: Callable[[], Watched], evidence: Evidence) -> Watched:
    """Return a job on the cluster, with work to do; it is started again if another transform is asked for."""
    cluster.heal()
    job = jobs()
    job.evidence, job.broken = evidence, True
    return job


def underway(used: Watched) -> None:
    """Let the job do its first work: it takes long to start here, and nothing of it can be hit or lost before."""
    used.begin(used.evidence.seed)
    used.settle()


def executor_in_mid_transaction(cluster: SparkCluster, used: Watched) -> int:
    """Let the job work until an executor waits in mid transaction; return that."""
    underway(used)
    used.faults.arm("after lane record", "wait")
    used.work(used.evidence.seed + 1)
    return struck_executor(cluster, used)


def struck_executor(cluster: SparkCluster, used: Watched) -> int:
    """Return the executor that waits or is frozen in mid transaction; never a process of the driver's."""
    used.watch(used.faults.struck, what="a lane is in mid transaction")
    struck = used.faults.struck()
    assert struck is not None
    assert struck not in tree(used.running.pid)
    return cluster.executor_of(struck)


@pytest.mark.fault("B1")
def test_an_executor_is_killed_in_mid_transaction(cluster: SparkCluster, used: Watched) -> None:
    underway(used)
    used.faults.arm("after lane record", "wait")
    used.work(used.evidence.seed + 1)
    executor = struck_executor(cluster, used)
    used.faults.disarm()
    signal_all(tree(executor), signal.SIGKILL)
    used.assert_recovered()
    assert used.evidence.restarts == 0, "Spark replaces an executor by itself"


@pytest.mark.fault("H1")
def test_a_worker_is_killed_with_its_executor(cluster: SparkCluster, used: Watched) -> None:
    underway(used)
    used.faults.arm("after compare", "wait")
    used.work(used.evidence.seed + 1)
    worker = cluster.worker_of(struck_executor(cluster, used))
    used.faults.disarm()
    signal_all(tree(worker), signal.SIGKILL)
    used.assert_recovered()
    assert used.evidence.restarts == 0, "the other worker goes on"


@pytest.mark.fault("B3")
def test_an_executor_that_was_given_up_wakes_up_as_a_zombie(cluster: SparkCluster, used: Watched) -> None:
    frozen = tree(executor_in_mid_transaction(cluster, used))
    signal_all(frozen, signal.SIGSTOP)
    used.faults.go()  # it goes on as soon as it can: to its commit, long after its time
    used.faults.disarm()
    used.settle()  # while it is frozen: another executor has taken its lane over
    signal_all(frozen, signal.SIGCONT)
    used.work(used.evidence.seed + 2)
    used.assert_recovered()


@pytest.mark.fault("B3")
def test_a_worker_that_was_given_up_wakes_up_with_its_executor_as_zombies(cluster: SparkCluster, used: Watched) -> None:
    frozen = tree(cluster.worker_of(executor_in_mid_transaction(cluster, used)))
    signal_all(frozen, signal.SIGSTOP)
    try:
        used.faults.go()
        used.faults.disarm()
        used.settle()  # on the other worker
        used.watch(lambda: cluster.state().get("aliveworkers") == len(HOSTS) - 1, what="the master has given it up")
    finally:
        signal_all(frozen, signal.SIGCONT)
    used.work(used.evidence.seed + 2)
    used.assert_recovered()


@pytest.mark.fault("E2")
def test_a_lost_checkpoint_is_no_disaster_on_a_cluster_either(used: Watched) -> None:
    underway(used)
    used.work(used.evidence.seed + 1)
    used.kill()
    shutil.rmtree(used.app.checkpoint)
    used.work(used.evidence.seed + 2)
    used.assert_recovered()


@pytest.mark.fault("G1")
def test_two_attempts_of_one_lane_at_once_write_it_once(cluster: SparkCluster, used: Watched) -> None:
    used.transform = speculating
    used.kill()
    used.running.wait()
    try:
        underway(used)
        used.faults.arm("after lane record", "pause")
        used.work(used.evidence.seed + 1)
        struck_executor(cluster, used)
        struck = used.faults.struck()
        assert struck is not None
        used.faults.disarm()
        used.settle()  # its batch cannot end without it, unless a second attempt was started
        assert used.evidence.restarts <= 1, "by the kill above; not by itself"
        signal_all([struck], signal.SIGCONT)
        used.work(used.evidence.seed + 2)
        used.assert_recovered()
    finally:
        used.transform = payments
        used.kill()


@pytest.mark.fault("H2")
def test_the_image_is_driver_and_executor_for_sparks_kubernetes_backend(
    brokers: Broker, tmp_path: Path, evidence: Evidence
) -> None:
    with SparkCluster(tmp_path, hosts=()) as master, watched(brokers, tmp_path) as used:
        used.evidence = evidence
        port = free_ports(1)[0].client
        conf = {
            **EXECUTOR,
            "spark.master": master.master,
            "spark.driver.port": str(port),
            "spark.driver.memory": "512m",
        }
        properties = tmp_path / "spark.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in conf.items()), encoding="utf-8")
        used.environ = {AS_POD: str(properties), "PYSPARK_PYTHON": sys.executable, "SPARK_DRIVER_BIND_ADDRESS": HOST}
        used.app.send(400, seed=evidence.seed)
        used.running.wait_for("the driver asks for executors", lambda: master.state().get("activeapps"))
        told = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HOST}:{port}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "2",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_APPLICATION_ID": master.state()["activeapps"][0]["id"],
            "SPARK_EXECUTOR_POD_IP": HOST,
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": "pipeline-exec-1",
            "SPARK_JAVA_OPT_0": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "SPARK_JAVA_OPT_1": "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        log = (tmp_path / "executor.log").open("wb")
        command = [sys.executable, "-m", "pipeline", "executor"]
        with (
            log,
            subprocess.Popen(command, env={**os.environ, **told}, stdout=log, stderr=log, cwd=tmp_path) as executor,
        ):
            try:
                used.assert_recovered()
                used.running.send(signal.SIGTERM)
                assert used.running.wait(JOB_SECONDS) == 0
                wait_until(lambda: executor.poll() is not None, JOB_SECONDS, "an executor ends with its driver")
            finally:
                executor.kill()


@pytest.mark.fault("H3")
def test_the_demo_is_exact_with_its_job_on_the_cluster(cluster: SparkCluster, package: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **cluster.environ(package, {})}
    command = [sys.executable, "-m", "pipeline", "demo", "--payments", "40000"]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("SIGKILL at") == KILLS
    assert "0 lost, 0 duplicated" in done.stdout
    applications = cluster.state()["completedapps"]
    assert len(applications) > KILLS, "each of its jobs was one of the cluster's, and not of this machine's alone"
