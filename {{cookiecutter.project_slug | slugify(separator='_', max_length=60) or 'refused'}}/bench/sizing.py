"""What lanes cost a cluster of three brokers: connections, requests and seconds for one batch, counted for real.

Each lane writes one transaction, as a Spark task does, with what the driver hands over; a proxy before each broker
reads every frame. Prints a table and the fitted line of docs/sizing.md; with `--json FILE` all figures.

Usage: python -m bench.sizing [--lanes 1,4,16,64] [--slots 4] [--rows 100]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.counted import CountedBroker
from tests.support.lanes import App, provisioned, run_task

from pipeline.lanes.recall import Recalled
from pipeline.settings import build

ROUNDS = 3
# Between two batches, as Spark plans the next one: a fence right after a commit meets markers that are being written.
PAUSE_SECONDS = 0.3


def batch(app: App, known: dict[int, Recalled], number: int, *, slots: int, rows: int) -> float:
    """Write one transaction in each lane, `slots` at a time; returns the seconds it took."""

    def write(partition: int) -> None:
        first = number * rows
        task = app.task(first, first + rows, partition=partition, recalled=known[partition])
        report = run_task(task, [app.rows(first, first + rows)])
        if report.failures:
            msg = f"lane {partition}: {report.failures}"
            raise RuntimeError(msg)
        known[partition] = Recalled(report.record, report.end)

    time.sleep(PAUSE_SECONDS)
    began = time.monotonic()
    with ThreadPoolExecutor(slots) as pool:
        list(pool.map(write, known))
    return time.monotonic() - began


def measured(broker: CountedBroker, lanes: int, slots: int, rows: int, connections: str) -> dict[str, Any]:
    """Count some batches of so many lanes; the first, which creates what Kafka creates once, is left out."""
    replicated = {"replication": 3, "partitions": 3}
    app = provisioned(broker.bootstrap, partitions=lanes, output=replicated)
    values = app.settings.model_dump()
    values["output"]["bootstrap"] = broker.gated
    values["transaction"] |= {"connections": connections, "timeout_ms": 60_000}
    known = {partition: app.recalled(partition) for partition in range(lanes)}
    app = App(build(values), app.source)
    batch(app, known, 0, slots=slots, rows=rows)
    broker.forget()
    seconds = [batch(app, known, 1 + number, slots=slots, rows=rows) for number in range(ROUNDS)]
    requests = broker.requests
    return {
        "lanes": lanes,
        "slots": slots,
        "rows": rows,
        "connect to": connections,
        "connections per lane": broker.connections / ROUNDS / lanes,
        "open at once": broker.open_most,
        "requests per lane": requests.total() / ROUNDS / lanes,
        "by kind": {name: round(count / ROUNDS / lanes, 2) for name, count in requests.most_common()},
        "seconds": round(statistics.median(seconds), 3),
        "of": [round(each, 3) for each in seconds],
    }


def fitted(points: list[dict[str, Any]]) -> tuple[float, float]:
    """Return slope and intercept of seconds over lanes."""
    line = statistics.linear_regression([point["lanes"] for point in points], [point["seconds"] for point in points])
    return line.slope, line.intercept


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.sizing")
    parser.add_argument("--lanes", default="1,4,16,64")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = []
    with CountedBroker() as broker:
        for connections in ("all", "needed"):
            points = []
            for lanes in map(int, given.lanes.split(",")):
                points.append(measured(broker, lanes, given.slots, given.rows, connections))
                print(json.dumps(points[-1]), flush=True)
            slope, intercept = fitted(points)
            print(f"{connections}: seconds = {intercept:.3f} + {slope:.4f} x lanes, {given.slots} slots")
            found += points
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
