"""`python -m tests.support.run_replay <settings file> <option ...>`: `replay`, with a transform of the tests."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from tests.support.job import payments

from pipeline import cli
from pipeline.flow import replay
from pipeline.settings import load


def main() -> None:
    """Replay as the command line does."""
    path, *options = sys.argv[1:]
    transform = payments(load(Path(path)))
    replay.Replay = partial(replay.Replay, transform=transform)  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "replay", "--settings", path, *options]
    cli.main()


if __name__ == "__main__":
    main()
