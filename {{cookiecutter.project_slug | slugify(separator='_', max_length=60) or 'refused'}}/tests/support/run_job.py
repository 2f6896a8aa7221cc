"""`python -m tests.support.run_job <module:function> <settings file>`: the command `run`, with a function of the tests.

With the file of Spark's properties in `RUN_AS_POD` it is called as Spark on Kubernetes calls the driver of the image.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import tests.mutants.preload  # noqa: F401  before anything of the product: a mutant breaks this process as well
from pyspark.sql import SparkSession

from pipeline import cli
from pipeline.flow import job
from pipeline.settings import load

AS_POD = "RUN_AS_POD"
SHOWN = "TESTS_SPARK_SHOWN"


def show_spark(port: str, folder: str) -> None:
    """Switch on what a user may switch on to look into Spark: its pages, at this port, and its log of events."""
    events = {"enabled": "true", "dir": Path(folder).as_uri(), "compress": "false", "rolling.enabled": "false"}
    wanted = {"spark.ui.port": port, **{f"spark.eventLog.{key}": value for key, value in events.items()}}
    config = SparkSession.Builder.config

    def changed(builder: Any, key: str, value: str) -> Any:
        if key != "spark.ui.enabled":
            return config(builder, key, value)
        for name, other in wanted.items():  # each builder is a new one
            config(builder, name, other)
        return config(builder, key, "true")

    SparkSession.Builder.config = changed


def main() -> None:
    """Run as the command line does."""
    if shown := os.environ.get(SHOWN):
        show_spark(*shown.split(" ", 1))
    name, path = sys.argv[1:]
    module, _, function = name.partition(":")
    transform = getattr(import_module(module), function)(load(Path(path)))
    job.Job = partial(job.Job, transform=transform)  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "run", "--settings", path]
    if properties := os.environ.get(AS_POD):
        called = ["driver", "--properties-file", properties, "--class", "Any", "local:///main.py"]
        sys.argv[1:1] = called
    cli.main()


if __name__ == "__main__":
    main()
