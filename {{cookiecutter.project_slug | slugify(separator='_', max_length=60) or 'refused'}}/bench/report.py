"""The results of benchmarks: kept part by part in one JSON file, drawn as an SVG, and put into the documentation.

    python -m bench.report build/bench/results.json --docs docs/performance.md      tables from an earlier run

Only what stands between the two marks of a part is rewritten; a part that was not run keeps its older figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import plot
from bench.machine import described
from pipeline.errors import PipelineError

RESULTS, PICTURE = "results.json", "figures.svg"
# Parts whose modules can show their result as tables.
SHOWN = ("throughput", "latency", "start", "growth", "overhead", "tuning")
BEGIN, END = "<!-- bench: {part} -->\n", "<!-- /bench -->"


def keep(folder: Path, part: str, result: dict[str, Any], scale: str) -> dict[str, Any]:
    """Put a part's result into the file, beside those of others; the picture follows."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    results = read(path) if path.exists() else {}
    about = {"scale": scale, "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    results |= {"machine": described(), part: {**result, **about}}
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / PICTURE).write_text(plot.draw(results), encoding="utf-8")
    return results


def read(path: Path) -> dict[str, Any]:
    """The results of all parts that were ever run into this file."""
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{path}: no results of a benchmark ({error}); run `make bench` first"
        raise PipelineError(msg) from None
    return results


def shown(part: str, result: dict[str, Any]) -> str:
    """A part's tables, as on the terminal."""
    text: str = import_module(f"bench.{part}").show(result)
    return text


def block(part: str, results: dict[str, Any]) -> str:
    """A part as it stands in the documentation."""
    if part == "machine":
        machine = results["machine"]
        return (
            f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}, "
            f"Python {machine['python']}; 3 million turns of a plain loop take {machine['loop_seconds']} s of CPU, "
            f"SHA-256 of 64 MiB {machine['digest_seconds']}."
        )
    result = results[part]
    return f"{shown(part, result)}\n\n{result['at']}, {result['scale']}."


def refreshed(text: str, results: dict[str, Any]) -> str:
    """The documentation with new tables, where there are any."""
    for part in ("machine", *SHOWN):
        if part in results:
            before, begin, rest = text.partition(BEGIN.format(part=part))
            _, end, after = rest.partition(END)
            if begin and end:
                text = f"{before}{begin}\n{block(part, results)}\n\n{end}{after}"
    return text


def refresh(page: Path, results: dict[str, Any]) -> None:
    """Rewrite the tables of a page."""
    page.write_text(refreshed(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def main() -> None:
    """Print the tables of a file, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    try:
        results = read(given.results)
        if given.docs:
            refresh(given.docs, results)
    except PipelineError as error:
        sys.exit(f"error: {error}")
    if not given.docs:
        print("\n\n".join(f"{part}\n\n{block(part, results)}" for part in SHOWN if part in results))


if __name__ == "__main__":
    main()
