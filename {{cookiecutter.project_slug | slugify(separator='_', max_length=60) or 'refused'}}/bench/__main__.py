"""`python -m bench`: all benchmarks, one after the other, on one broker; `make bench`.

    python -m bench                             quick: throughput, latency, start, growth, overhead; about 5 minutes
    python -m bench --scale long                the same for longer, tuning, codec and hostile too; hours
    python -m bench throughput latency          some parts by name

Progress goes to standard error, tables to standard output, everything to a JSON file and a picture in `build/bench`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.report import PICTURE, RESULTS, keep, refresh, shown
from bench.stage import stage
from pipeline.errors import PipelineError

Options = dict[str, Any]
QUICK: dict[str, Options] = {
    "throughput": {"records": 300_000, "runs": 2},
    "latency": {"seconds": 15.0, "warm": 8.0},
    "start": {"records": 200_000, "runs": 1},
    "growth": {},
    "overhead": {"records": 60_000, "batch": 15_000, "rounds": 2},
}
# Too long for a quick look; by name, and in a long run.
BY_NAME: dict[str, Options] = {"tuning": {}}
LONG: dict[str, Options] = {
    "throughput": {"records": 2_000_000, "runs": 5},
    "latency": {"seconds": 120.0, "warm": 30.0},
    "start": {"records": 400_000, "runs": 5},
    "growth": {"long": 1, "rounds": 3},
    "overhead": {"records": 1_000_000, "batch": 100_000, "rounds": 5},
    "tuning": {"rounds": 5},
}
# They have commands, bounds and tables of their own, and end with 1 beyond their bounds.
OTHERS = ("codec", "hostile")


def main() -> None:
    """Run the parts that are asked for; ends with 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=", ".join((*LONG, *OTHERS)))
    parser.add_argument("--scale", choices=("quick", "long"), default="quick")
    parser.add_argument("--into", type=Path, default=Path("build", "bench"), help="folder of the results")
    parser.add_argument("--docs", type=Path, help="a page whose tables are rewritten, such as docs/performance.md")
    given = parser.parse_args()
    unknown = set(given.parts) - {*LONG, *OTHERS}
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    asked = given.parts or (QUICK if given.scale == "quick" else [*LONG, *OTHERS])
    try:
        measure([part for part in asked if part in LONG], given)
    except PipelineError as error:
        sys.exit(f"error: {error}")
    failed = [part for part in asked if part in OTHERS and subprocess.call([sys.executable, "-m", f"bench.{part}"])]
    sys.exit(f"not as wanted: {', '.join(failed)}" if failed else 0)


def measure(parts: list[str], given: argparse.Namespace) -> None:
    """Run each part on one broker, and keep its result at once: an interrupted run loses only the part in hand."""
    if not parts:
        return
    options = QUICK | BY_NAME if given.scale == "quick" else LONG
    with stage() as here:
        for part in parts:
            here.say(f"{part} ({given.scale})")
            result = import_module(f"bench.{part}").measure(here, **options[part])
            results = keep(given.into, part, result, given.scale)
            print(f"\n{part}\n\n{shown(part, result)}\n", flush=True)
            if given.docs:
                refresh(given.docs, results)
        here.say(f"{given.into / RESULTS} has all figures, {given.into / PICTURE} draws them")


if __name__ == "__main__":
    main()
