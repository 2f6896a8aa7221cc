"""StampedProducer killed with SIGKILL again and again: the deduplicated log holds every payment exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.upstream_child import payload
from tests.support.kafka import create_topic, read_committed, read_uncommitted, wait_until

import pipeline
from pipeline.lanes.identity import parse
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.recent import Verdict
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from tests.support.kafka import Record

    from pipeline.local.broker import Broker

ROWS = 4_000
RUN_SECONDS = 60.0
PARTITIONS = 3
SRC = Path(pipeline.__file__).parents[1]
CHILD = Path(__file__).with_name("upstream_child.py")
# Each kill: the step in which the child ends itself, and in which of its transactions.
FAULTS = [("sending", 3), ("sent", 1), ("committed", 4), ("committed", 1), ("sent", 5), ("sending", 1)]
KILLS_FROM_OUTSIDE = 3


class Upstream:
    """The child program, started as often as it takes."""

    def __init__(self, bootstrap: str, topic: str, state: Path, mode: str) -> None:
        self.state = state
        self.command = [sys.executable, str(CHILD), bootstrap, topic, str(state), str(ROWS), mode]
        self.environment = {**os.environ, "PYTHONPATH": str(SRC)}

    def run(self, place: str = "nowhere", number: int = 1) -> int:
        return subprocess.run(
            [*self.command, place, str(number)], env=self.environment, timeout=RUN_SECONDS, check=False
        ).returncode

    def run_and_kill(self, rows: int) -> int:
        """Kill it from outside once it has passed so many further rows, wherever it is then."""
        target = self.row() + rows
        child = subprocess.Popen([*self.command, "nowhere", "1"], env=self.environment)
        try:
            wait_until(lambda: self.row() >= target or child.poll() is not None, what=f"row {target}")
        finally:
            child.kill()
            child.wait()
        return child.returncode

    def row(self) -> int:
        return int(json.loads(self.state.read_text())["row"]) if self.state.exists() else 0


def judged(records: list[Record]) -> list[tuple[Verdict, bytes]]:
    """Judge the log as the lanes do: one ledger for each partition, in offset order."""
    ledgers = [Ledger(Dedup.model_validate({})) for _ in range(PARTITIONS)]
    verdicts = []
    for record in records:
        found = dict(record.headers)
        identity = parse(*(found.get(name) for name in ("producer-id", "producer-epoch", "txn-id", "seq")))
        assert identity is not None
        value = record.value or b""
        verdicts.append((ledgers[record.partition].judge(identity, zlib.crc32((record.key or b"") + value)), value))
    return verdicts


@pytest.mark.parametrize("mode", ["position", "read-back"])
def test_every_payment_of_a_producer_killed_many_times_counts_exactly_once(
    broker: Broker, tmp_path: Path, mode: str
) -> None:
    topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
    child = Upstream(broker.bootstrap, topic, tmp_path / "state.json", mode)
    for place, number in FAULTS:
        assert child.run(place, number) == -signal.SIGKILL
    chance = random.Random(mode)  # noqa: S311 - a schedule, not a secret
    for _ in range(KILLS_FROM_OUTSIDE):
        assert child.run_and_kill(rows=chance.randint(50, 400)) == -signal.SIGKILL
    assert child.row() < ROWS
    assert child.run() == 0

    log = read_committed(broker.bootstrap, topic)
    verdicts = judged(log)
    assert {verdict for verdict, _ in verdicts} <= {Verdict.FRESH, Verdict.DUPLICATE}
    fresh = [value for verdict, value in verdicts if verdict is Verdict.FRESH]
    assert sorted(fresh) == [payload(row)[1] for row in range(ROWS)]
    assert len(read_uncommitted(broker.bootstrap, topic)) > len(log), "some kill must have hit an open transaction"
    if mode == "position":
        assert len(log) > ROWS, "some kill must have come between commit and store"
    else:
        assert len(log) == ROWS
