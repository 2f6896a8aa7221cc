"""`python -m tests.support.run_job <transform> <settings file>`: the command `run`, with a transform of the tests."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests.support import job as support

from pipeline import cli
from pipeline.flow import job
from pipeline.settings import load


def main() -> None:
    """Run as the command line does."""
    name, path = sys.argv[1:]
    transform = getattr(support, name)(load(Path(path)))
    job.Job = partial(job.Job, transform=transform)  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "run", "--settings", path]
    cli.main()


if __name__ == "__main__":
    main()
