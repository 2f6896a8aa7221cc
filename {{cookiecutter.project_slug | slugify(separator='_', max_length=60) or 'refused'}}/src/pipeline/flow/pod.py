"""What Spark on Kubernetes asks of the image: `pipeline driver ...` and `pipeline executor`, as its pods are started.

Guarantee: the driver is the same program as everywhere. Its Python is the first process, so SIGTERM ends it after the
chunk in hand and its exit code is the pod's, where Spark's own image would run Java first and lose both. A job that was
replaced by a newer run ends with 0, so that nobody starts it again.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pipeline.errors import BadSettings, Replaced
from pipeline.local.java import java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
PROPERTIES_FILE = "--properties-file"
JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
# A line of a Java properties file, as Spark writes it: names have no blanks, values may be escaped.
PROPERTY = re.compile(r"(?P<name>[^#!=:\s]+?)\s*[=:\s]\s*(?P<value>.*)")
# What Spark's pods are told, and how the backend calls it.
TOLD = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def driver_environ(arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What the environment must say so that this very process becomes the driver that Spark asked for."""
    try:
        file = Path(arguments[list(arguments).index(PROPERTIES_FILE) + 1])
    except (ValueError, IndexError):
        msg = f"{PROPERTIES_FILE} is missing: `pipeline driver` is for Spark on Kubernetes; use `pipeline run`"
        raise BadSettings(msg) from None
    properties = read_properties(file)
    submit = [PROPERTIES_FILE, str(file), "--deploy-mode", "client"]
    if address := environ.get("SPARK_DRIVER_BIND_ADDRESS"):
        submit += ["--conf", f"spark.driver.bindAddress={address}"]
    given = {"PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"])}
    # The pod's memory was reckoned with these, so they win over the settings.
    for name, variable in (("spark.master", "MASTER"), ("spark.driver.memory", "DRIVER_MEMORY")):
        if name in properties:
            given[f"PIPELINE_SPARK__{variable}"] = properties[name]
    return given


def program_arguments(arguments: Sequence[str]) -> list[str]:
    """What stands behind the main file, which is only named: the arguments of the program, or just `run`."""
    left = list(arguments)
    while left and left[0].startswith("--"):
        left = left[2:]
    return left[1:] or ["run"]


def read_properties(file: Path) -> dict[str, str]:
    """The properties that Spark wrote for its driver."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{file}: Spark's properties cannot be read: {error.strerror}"
        raise BadSettings(msg) from None
    found = (PROPERTY.fullmatch(line.strip()) for line in text.splitlines())
    return {match["name"]: re.sub(r"\\(.)", r"\1", match["value"]) for match in found if match}


def executor_command(environ: Mapping[str, str]) -> list[str]:
    """The Java process of an executor, as Spark's own image starts it."""
    missing = sorted(variable for variable in (*TOLD.values(), "SPARK_EXECUTOR_MEMORY") if variable not in environ)
    if missing:
        msg = f"{', '.join(missing)}: not set; `pipeline executor` is for Spark on Kubernetes"
        raise BadSettings(msg)
    numbered = {int(match[1]): value for name, value in environ.items() if (match := JAVA_OPTION.fullmatch(name))}
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    jars = f"{next(iter(pyspark.__path__))}/jars/*"
    classes = ":".join(filter(None, [environ.get("SPARK_CONF_DIR"), jars, environ.get("SPARK_EXTRA_CLASSPATH")]))
    told = [part for option, variable in TOLD.items() for part in (option, environ[variable])]
    options = [numbered[number] for number in sorted(numbered)]
    return [java(), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, BACKEND, *told]


def exit_code(error: Exception) -> int:
    """The pod's exit code: everything but a replacement is worth another start."""
    return 0 if isinstance(error, Replaced) else int(getattr(error, "exit_code", 1))
