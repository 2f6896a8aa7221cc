"""Run the package of `make package` on a cluster: Spark standalone, YARN, or Kubernetes.

The driver runs here (`client`, the default): its Python is the first process, so SIGTERM and exit codes are as they are
everywhere. Or in the cluster (`--deploy-mode cluster`, which standalone masters do not offer for Python): then
`spark-submit` hands it over, with the settings of this environment (`PIPELINE_<SECTION>__<KEY>`), of which none is a
secret; what would not reach the driver as it stands is refused.

Usage: python -m supply.submit --master spark://host:7077 [options of spark-submit ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pipeline.avro.login import USER_INFO
from pipeline.errors import BadSettings
from pipeline.settings import of_environ
from supply.package import ARCHIVE, DEFAULT, MAIN, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where Spark unpacks the archive, in the working folder of each executor.
UNPACKED = "environment"
# For a driver in the cluster: how its environment is set, by the kind of master.
DRIVER_ENVIRON = {"yarn": "spark.yarn.appMasterEnv.", "k8s": "spark.kubernetes.driverEnv."}
# What a value must not hold: YARN writes it between double quotes into a shell script, Kubernetes replaces $(NAME).
ALTERED = {"yarn": re.compile(r'["$`\\\r\n]|\{\{|\}\}|<CPS>'), "k8s": re.compile(r"\$\(|\$\$")}
PACKED = "pipeline.toml"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def options(package: Path) -> list[str]:
    """What every executor needs: the archive, and the way into it."""
    archive = (package / ARCHIVE).absolute()
    return [
        "--archives",
        f"{archive}#{UNPACKED}",
        "--conf",
        f"spark.executorEnv.PYTHONPATH={UNPACKED}/lib",
    ]


def client_environ(package: Path, master: str, python: str = PYTHON, more: Sequence[str] = ()) -> dict[str, str]:
    """What the environment must say so that `pipeline run` becomes the driver of a cluster."""
    return {
        "PIPELINE_SPARK__MASTER": master,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*options(package), *more, "pyspark-shell"]),
    }


def handed_over(environ: Mapping[str, str], kind: str) -> dict[str, str]:
    """The settings of an environment that reach a driver in the cluster, or why one of them cannot."""
    file = environ.get("PIPELINE_SETTINGS")
    if file and Path(file).absolute() != ROOT / PACKED:
        msg = f"PIPELINE_SETTINGS = {file!r}: a driver in the cluster has only {PACKED}, as `make package` packed it"
        raise BadSettings(msg)
    found = of_environ(environ)
    for name, value in found.items():
        if sign := ALTERED[kind].search(value):
            how = f"{sign[0]!r} would not reach a driver in the cluster as it is"
            msg = f"environment variable {name} = {value!r}: {how}; write it into {PACKED}, and `make package`"
            raise BadSettings(msg)
    return found


def cluster_command(
    package: Path, master: str, python: str = PYTHON, more: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> list[str]:
    """How `spark-submit` hands the driver over to the cluster, with the settings of this environment."""
    kind = master.partition(":")[0]
    given = {**handed_over(environ, kind), "PIPELINE_SPARK__MASTER": master, "PYSPARK_PYTHON": python}
    conf = [part for name, value in given.items() for part in ("--conf", f"{DRIVER_ENVIRON[kind]}{name}={value}")]
    home = os.environ.get("SPARK_HOME") or next(iter(pyspark.__path__))
    start = [f"{home}/bin/spark-submit", "--master", master, "--deploy-mode", "cluster"]
    return [*start, *options(package), *conf, *more, str(package / MAIN), "run"]


def main(arguments: Sequence[str]) -> None:
    """Become the driver, or `spark-submit`."""
    parser = argparse.ArgumentParser(prog="python -m supply.submit", description=__doc__.partition("\n")[0])
    parser.add_argument("--master", required=True)
    parser.add_argument("--deploy-mode", choices=["client", "cluster"], default="client")
    parser.add_argument("--package", type=Path, default=DEFAULT)
    parser.add_argument("--python", default=PYTHON, help="as executors find it; the same version as here")
    given, more = parser.parse_known_args(arguments)
    if not (given.package / ARCHIVE).exists():
        parser.error(f"{given.package / ARCHIVE} is not there: make package")
    if given.deploy_mode == "cluster":
        if given.master.partition(":")[0] not in DRIVER_ENVIRON:
            parser.error(f"a driver in the cluster: only {', '.join(DRIVER_ENVIRON)}, not {given.master}")
        try:
            command = cluster_command(given.package, given.master, given.python, more)
        except BadSettings as error:
            parser.error(str(error))
        if os.environ.get(USER_INFO):
            advice = "mount it as a file, and name that in codec.registry_user_info_file"
            sys.stderr.write(f"{USER_INFO} is not handed over, since Spark would show it: {advice}\n")
        os.execv(command[0], command)  # noqa: S606  a list built here
    os.environ |= client_environ(given.package, given.master, given.python, more)
    os.execv(sys.executable, [sys.executable, "-m", "pipeline", "run"])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
