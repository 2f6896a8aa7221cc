"""Asks the job of this machine whether it is ready, for the health check of its container: exit code 0 if so, else 1.

Usage: python -m pipeline.observe.health
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.observe.scrape import scrape
from pipeline.observe.watch import endpoint_of
from pipeline.settings import load

READY = "ready"


def main() -> int:
    """Ask, and hand on what was said."""
    try:
        said = scrape(endpoint_of(load(Path(os.environ.get("PIPELINE_SETTINGS", "pipeline.toml"))))).ready
    except PipelineError as error:
        said = str(error)
    sys.stdout.write(f"{said}\n")
    return int(said != READY)


if __name__ == "__main__":
    sys.exit(main())
