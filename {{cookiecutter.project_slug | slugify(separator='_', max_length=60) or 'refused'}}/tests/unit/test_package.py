"""What is packed for a cluster, and how it is submitted: locked versions only, the same bytes twice."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from supply import package, submit
from supply.package import ARCHIVE, MAIN, ROOT, contents, locked, pack, packages

from pipeline.errors import BadSettings, PipelineError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"prometheus-client": importlib.metadata.version("prometheus-client")}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package with one dependency."""
    folder = tmp_path_factory.mktemp("package")
    pack(folder, SMALL)
    return folder


def test_what_is_locked_is_all_that_the_cluster_does_not_have_itself() -> None:
    wanted = locked()
    assert {"confluent-kafka", "fastavro", "numpy", "pandas", "pyarrow", "pydantic"} <= wanted.keys()
    assert not {"pyspark", "py4j", "setuptools"} & wanted.keys()
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert all(f"{name}=={version}" in text for name, version in wanted.items())


def test_the_archive_holds_package_dependencies_jars_settings_and_schemas(packed: Path) -> None:
    with tarfile.open(packed / ARCHIVE) as tar:
        names = tar.getnames()
        assert {entry.mtime for entry in tar.getmembers()} == {0}
        assert {entry.uid for entry in tar.getmembers()} == {0}
    assert "lib/pipeline/flow/job.py" in names
    assert "lib/pipeline/lanes/lane_record.avsc" in names
    assert "lib/prometheus_client/core.py" in names
    assert "project/pipeline.toml" in names
    schemas = {path.relative_to(ROOT).as_posix() for path in (ROOT / "schemas").rglob("*") if path.is_file()}
    assert {f"project/{name}" for name in schemas} == {name for name in names if name.startswith("project/schemas/")}
    assert [name for name in names if name.startswith("jars/spark-") and "spark-sql-kafka" in name]
    assert not [name for name in names if "__pycache__" in name or name.startswith("lib/pyspark")]


def test_the_same_input_gives_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    assert pack(tmp_path, SMALL).read_bytes() == (packed / ARCHIVE).read_bytes()


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            {"prometheus-client": "0.0.1"},
            r"prometheus-client is .* here, but 0\.0\.1 in requirements\.lock: make setup",
        ),
        ({"no-such-package": "1.0"}, r"no-such-package 1\.0 of requirements\.lock is not installed here: make setup"),
    ],
    ids=["another version", "missing"],
)
def test_what_is_not_as_locked_is_not_packed(wanted: dict[str, str], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        list(packages(wanted))


def test_a_package_that_cannot_be_made_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "locked", lambda: {"no-such-package": "1.0"})
    assert package.main([str(tmp_path)]) == 1
    assert not (tmp_path / ARCHIVE).exists()


def test_the_entry_runs_from_the_archive_alone(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(packed / ARCHIVE) as tar:
        tar.extractall(tmp_path / "environment", filter="data")
    # Another interpreter path than that of the tests: only the archive has the package.
    script = f"import os, runpy; runpy.run_path({str(packed / MAIN)!r}); import pipeline; "
    script += "print(pipeline.__file__, os.getcwd())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path, env={}
    )
    place = tmp_path / "environment"
    assert done.stdout.split() == [f"{place}/lib/pipeline/__init__.py", f"{place}/project"]


def test_a_driver_here_is_the_command_line_with_another_environment(packed: Path) -> None:
    environ = submit.client_environ(packed, "spark://host:7077", "python3.11", ["--conf", "spark.executor.memory=2g"])
    assert environ["PIPELINE_SPARK__MASTER"] == "spark://host:7077"
    assert environ["PYSPARK_PYTHON"] == "python3.11"
    assert environ["PYSPARK_SUBMIT_ARGS"] == (
        f"--archives '{packed}/{ARCHIVE}#environment' --conf spark.executorEnv.PYTHONPATH=environment/lib "
        "--conf spark.executor.memory=2g pyspark-shell"
    )


@pytest.mark.parametrize(
    ("master", "variable"),
    [
        ("yarn", "spark.yarn.appMasterEnv.PIPELINE_SPARK__MASTER=yarn"),
        ("k8s://https://host:6443", "spark.kubernetes.driverEnv.PIPELINE_SPARK__MASTER=k8s://https://host:6443"),
    ],
)
def test_a_driver_in_the_cluster_is_handed_over_with_its_settings(packed: Path, master: str, variable: str) -> None:
    command = submit.cluster_command(packed, master, environ={})
    assert command[0].endswith("/bin/spark-submit")
    assert command[1:5] == ["--master", master, "--deploy-mode", "cluster"]
    assert variable in command
    assert command[-2:] == [str(packed / MAIN), "run"]


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
def test_settings_of_the_environment_reach_a_driver_in_the_cluster_and_nothing_else_does(
    packed: Path, master: str
) -> None:
    environ = {
        "PIPELINE_SOURCE__BOOTSTRAP": "kafka-1:9092,kafka-2:9092",
        "PIPELINE_OUTPUT__TOPICS": "receipts,alerts",
        "PIPELINE_CODEC__OUTPUT_SCHEMA_FILES": "schemas/{topic}.avsc",
        "PIPELINE_OUTPUT__BOOTSTRAP": "",
        "PIPELINE_SPARK__MASTER": "local[4,4]",
        "PIPELINE_JARS": "/jars",
        "PIPELINE_SETTINGS": str(ROOT / "pipeline.toml"),
        "KAFKA_PASSWORD": "c4nary",
        "SCHEMA_REGISTRY_USER_INFO": "shop:c4nary",
    }
    prefix = {"yarn": "spark.yarn.appMasterEnv.", "k8s": "spark.kubernetes.driverEnv."}[master.partition(":")[0]]
    command = submit.cluster_command(packed, master, "python3.11", environ=environ)
    given = [word.removeprefix(prefix) for word in command if word.startswith(prefix)]
    assert sorted(given) == [
        "PIPELINE_CODEC__OUTPUT_SCHEMA_FILES=schemas/{topic}.avsc",
        "PIPELINE_OUTPUT__BOOTSTRAP=",
        "PIPELINE_OUTPUT__TOPICS=receipts,alerts",
        "PIPELINE_SOURCE__BOOTSTRAP=kafka-1:9092,kafka-2:9092",
        f"PIPELINE_SPARK__MASTER={master}",
        "PYSPARK_PYTHON=python3.11",
    ]
    assert all(command[at - 1] == "--conf" for at, word in enumerate(command) if word.startswith(prefix))
    assert "c4nary" not in " ".join(command)


OFFSETS = 'offsets:{"0": 17}'


@pytest.mark.parametrize(
    ("master", "name", "value", "told"),
    [
        ("yarn", "SOURCE__START", OFFSETS, "'\"' would not reach a driver in the cluster as it is; write it into"),
        ("yarn", "WINDOWS__TIME", "a$b", "'$' would not reach"),
        ("yarn", "WINDOWS__TIME", "{{a}}", "'{{' would not reach"),
        ("k8s://https://host", "WINDOWS__TIME", "$(HOME)", "'$(' would not reach"),
        ("yarn", "SECURITY__PASSWORD", "c4nary", "PIPELINE_SECURITY__PASSWORD: security.password: refused: a secret"),
        ("yarn", "SOURCE__BOOTSTRAP", "shop:c4nary@kafka:1", "source.bootstrap = '***@kafka:1': must be host:port"),
        ("yarn", "SOURCE_TOPIC", "x", "two underscores part section and key: PIPELINE_SOURCE__TOPIC"),
        ("yarn", "OUTPUT__PARTITIONS", "many", "output.partitions = 'many': must be a whole number"),
        ("yarn", "SETTINGS", "other.toml", "PIPELINE_SETTINGS = 'other.toml': a driver in the cluster has only"),
    ],
)
def test_what_would_not_reach_a_driver_in_the_cluster_is_refused(
    packed: Path, master: str, name: str, value: str, told: str
) -> None:
    with pytest.raises(BadSettings) as caught:
        submit.cluster_command(packed, master, environ={f"PIPELINE_{name}": value})
    assert told in str(caught.value)
    assert "c4nary" not in str(caught.value)


def test_quotes_reach_a_driver_on_kubernetes(packed: Path) -> None:
    command = submit.cluster_command(packed, "k8s://https://host", environ={"PIPELINE_SOURCE__START": OFFSETS})
    assert f"spark.kubernetes.driverEnv.PIPELINE_SOURCE__START={OFFSETS}" in command


def test_a_login_that_stays_behind_is_told(
    packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def start(_: str, command: list[str]) -> None:
        started.append(command)
        raise SystemExit(0)

    monkeypatch.setattr("os.execv", start)
    monkeypatch.setenv("SCHEMA_REGISTRY_USER_INFO", "shop:c4nary")
    monkeypatch.setenv("PIPELINE_SOURCE__TOPIC", "refunds")
    with pytest.raises(SystemExit):
        submit.main(["--master", "yarn", "--deploy-mode", "cluster", "--package", str(packed)])
    assert "spark.yarn.appMasterEnv.PIPELINE_SOURCE__TOPIC=refunds" in started[0]
    said = capsys.readouterr().err
    assert said.startswith("SCHEMA_REGISTRY_USER_INFO is not handed over, since Spark would show it: mount it")
    assert "c4nary" not in said + " ".join(started[0])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--master", "spark://host:7077", "--deploy-mode", "cluster"], "a driver in the cluster: only yarn, k8s"),
        (["--master", "yarn", "--package", "nowhere"], "is not there: make package"),
        ([], "--master"),
    ],
    ids=["standalone", "not packed", "no master"],
)
def test_what_cannot_be_submitted_is_told_in_a_line(
    packed: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        msg = "nothing was to be started"
        raise AssertionError(msg)

    monkeypatch.setattr("os.execv", never)
    given = arguments if "--package" in arguments else [*arguments, "--package", str(packed)]
    with pytest.raises(SystemExit):
        submit.main(given)
    assert told in capsys.readouterr().err


def test_the_contents_are_named_once() -> None:
    names = [name for _, name in contents(SMALL)]
    assert len(names) == len(set(names))
