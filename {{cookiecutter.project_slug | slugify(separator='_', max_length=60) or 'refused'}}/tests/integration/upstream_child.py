"""An upstream program for tests: sends numbered payments from its own durable position, until killed or done.

Arguments: bootstrap, topic, state file, rows in all, mode, where to die, at which of its transactions.
Mode `position`: the file holds the producer's position and the next row, written after each commit.
Mode `read-back`: it holds the transaction about to be sent; after a restart the last committed number tells its fate.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from pipeline import upstream
from pipeline.upstream import Position, StampedProducer
from pipeline.upstream_attempt import Attempt

PRODUCER_ID = "till-1"


def payload(row: int) -> tuple[bytes, bytes]:
    """Return key and value of a payment."""
    return b"account-%d" % (row % 17), b"payment-%06d" % row


def size(row: int) -> int:
    """Say how many rows the transaction that starts at this row has; always the same."""
    return 1 + row * 7 % 40


def store(path: Path, state: dict[str, int]) -> None:
    """Write the state durably."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def die() -> NoReturn:
    """End at once, as by a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


def die_at(place: str, number: int) -> None:
    """Arrange the end in the given step of the given transaction of this run."""
    send, commit = Attempt.send, Attempt.commit
    begun = iter(range(1, number + 1))
    current = [0]

    def sending(attempt: Attempt, topic: str, rows: Any) -> dict[int, int]:
        current[0] = next(begun, 0)
        if place == "sending" and current[0] == number:
            send(attempt, topic, list(rows)[:-1])
            die()
        return send(attempt, topic, rows)

    def committing(attempt: Attempt) -> None:
        if place == "sent" and current[0] == number:
            die()
        commit(attempt)
        if place == "committed" and current[0] == number:
            die()

    setattr(Attempt, "send", sending)  # noqa: B010 - a fault is planted, not a method typed
    setattr(Attempt, "commit", committing)  # noqa: B010


def main(arguments: list[str]) -> None:
    """Send the rest of the rows."""
    bootstrap, topic, state_file, rows, mode, place, number = arguments
    upstream.BLIND_SECONDS = 0.2
    die_at(place, int(number))
    path = Path(state_file)
    state: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    config = {"bootstrap.servers": bootstrap}
    if mode == "position":
        stored = Position(state.get("epoch", 0), state.get("next_txn", 0))
        producer = StampedProducer(config, topic, PRODUCER_ID, position=stored)
        row = state.get("row", 0)
    else:
        producer = StampedProducer(config, topic, PRODUCER_ID)
        last = producer.last_committed
        done = bool(state) and last is not None and last >= state["txn"]
        row = state.get("row", 0) + (size(state["row"]) if done else 0)
    while row < int(rows):
        if mode == "read-back":
            store(path, {"txn": producer.position.next_txn, "row": row})
        with producer.transaction() as transaction:
            for place_in_file in range(row, min(row + size(row), int(rows))):
                transaction.send(*payload(place_in_file))
        row += size(row)
        if mode == "position":
            store(path, {"epoch": producer.position.epoch, "next_txn": producer.position.next_txn, "row": row})


if __name__ == "__main__":
    main(sys.argv[1:])
