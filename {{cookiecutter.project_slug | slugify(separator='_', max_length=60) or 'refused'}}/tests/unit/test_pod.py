"""The image as Spark on Kubernetes starts it: the driver is this program, an executor is Spark's own backend."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.errors import BadSettings, Replaced, SafeStop, Unreachable
from pipeline.flow import pod
from pipeline.local.java import java

if TYPE_CHECKING:
    from collections.abc import Sequence

MAIN = "local:///opt/pipeline/bin/pipeline"
PROPERTIES = """\
#Java properties built from Kubernetes config map with name: spark-drv-conf-map
spark.master=k8s\\://https\\://kubernetes.default.svc\\:443
spark.driver.memory=2g
spark.app.name = pipeline
"""
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@pipeline-driver-svc.production.svc:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pipeline-exec-3",
    "SPARK_JAVA_OPT_10": "-Dlast",
    "SPARK_JAVA_OPT_2": "-Dfirst",
}


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """What Spark calls the driver's image with."""
    file = tmp_path / "spark.properties"
    file.write_text(PROPERTIES, encoding="utf-8")
    return ["--properties-file", str(file), "--class", "org.apache.spark.deploy.PythonRunner", MAIN, "run", "--json"]


def test_the_driver_takes_master_and_memory_from_what_spark_wrote(asked: Sequence[str]) -> None:
    given = pod.driver_environ(asked, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"})
    assert given == {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {asked[1]} --deploy-mode client "
        "--conf spark.driver.bindAddress=10.0.0.5 pyspark-shell",
        "PIPELINE_SPARK__MASTER": "k8s://https://kubernetes.default.svc:443",
        "PIPELINE_SPARK__DRIVER_MEMORY": "2g",
    }


def test_the_driver_runs_what_stands_behind_the_main_file(asked: Sequence[str]) -> None:
    assert pod.program_arguments(asked) == ["run", "--json"]
    assert pod.program_arguments(asked[:5]) == ["run"]


def test_an_executor_is_sparks_own_backend_with_all_that_it_was_told() -> None:
    command = pod.executor_command(EXECUTOR | {"SPARK_CONF_DIR": "/opt/spark/conf"})
    jars = f"{next(iter(pyspark.__path__))}/jars/*"
    assert command[:7] == [java(), "-Dfirst", "-Dlast", "-Xms1g", "-Xmx1g", "-cp", f"/opt/spark/conf:{jars}"]
    assert command[7] == pod.BACKEND
    options = dict(zip(command[8::2], command[9::2], strict=True))
    assert options == {option: EXECUTOR[variable] for option, variable in pod.TOLD.items()}


def test_the_backend_is_among_the_jars_of_this_spark() -> None:
    [jar] = Path(next(iter(pyspark.__path__)), "jars").glob("spark-kubernetes_*.jar")
    assert f"{pod.BACKEND.replace('.', '/')}.class" in zipfile.ZipFile(jar).namelist()


@pytest.mark.parametrize("variable", [*pod.TOLD.values(), "SPARK_EXECUTOR_MEMORY"])
def test_an_executor_that_spark_did_not_start_is_told_so(variable: str) -> None:
    environ = {name: value for name, value in EXECUTOR.items() if name != variable}
    with pytest.raises(BadSettings, match=f"{variable}: not set; `pipeline executor` is for Spark on Kubernetes"):
        pod.executor_command(environ)


@pytest.mark.parametrize("arguments", [[], ["run"], ["--properties-file"]])
def test_a_driver_that_spark_did_not_start_is_told_so(arguments: list[str]) -> None:
    with pytest.raises(BadSettings, match="use `pipeline run`"):
        pod.driver_environ(arguments, {})


def test_properties_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="Spark's properties cannot be read: No such file"):
        pod.driver_environ(["--properties-file", str(tmp_path / "none")], {})


def test_only_a_job_that_was_replaced_ends_in_order_so_that_nobody_starts_it_again() -> None:
    codes = [pod.exit_code(kind("")) for kind in (Replaced, SafeStop, Unreachable, BadSettings, RuntimeError)]
    assert codes == [0, 3, 6, 2, 1]


def test_the_driver_is_the_command_line_in_this_very_process(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")  # so that what is set here is taken back
    monkeypatch.setenv("PIPELINE_SPARK__MASTER", "")
    monkeypatch.setenv("PIPELINE_SPARK__DRIVER_MEMORY", "")
    done = CliRunner().invoke(app, ["driver", *asked])
    assert done.exit_code == 2
    assert "pipeline.toml: no such settings file" in done.output


def test_neither_is_shown_to_people() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "run" in shown
    assert "executor" not in shown
