"""`python -m tests.support.run_job <module:function> <settings file>`: the command `run`, for tests."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from pipeline import cli
from pipeline.flow import job
from pipeline.settings import load


def main() -> None:
    """Run as the command line does."""
    name, path = sys.argv[1:]
    module, _, function = name.partition(":")
    transform = getattr(import_module(module), function)(load(Path(path)))
    job.Job = partial(job.Job, transform=transform)  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "run", "--settings", path]
    cli.main()


if __name__ == "__main__":
    main()
