"""`python -m tests.support.run_job <transform> <settings file>`: the command `run`, with a transform of the tests.

With the file of Spark's properties in `RUN_AS_POD` it is called as Spark on Kubernetes calls the driver of the image.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from tests.support import job as support

from pipeline import cli
from pipeline.flow import job
from pipeline.settings import load

AS_POD = "RUN_AS_POD"


def main() -> None:
    """Run as the command line does."""
    name, path = sys.argv[1:]
    transform = getattr(support, name)(load(Path(path)))
    job.Job = partial(job.Job, transform=transform)  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "run", "--settings", path]
    if properties := os.environ.get(AS_POD):
        called = ["driver", "--properties-file", properties, "--class", "Any", "local:///main.py"]
        sys.argv[1:1] = called
    cli.main()


if __name__ == "__main__":
    main()
