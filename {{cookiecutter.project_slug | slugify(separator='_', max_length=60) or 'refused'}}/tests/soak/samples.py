"""What must not grow while a job lives: memory, open files, threads, transactional ids; sampled, kept, and judged."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.support.cluster import TRANSACTION_STATE
from tests.support.kafka import DEADLINE_SECONDS

from pipeline.kafka import consumer_config
from pipeline.local.processes import tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What may come of garbage that is not collected yet, and of one more connection or pool; beyond it something leaks.
# These are of a process: they begin anew with each life of the job.
OF_A_LIFE = {"megabytes": (1.25, 64.0), "files": (1.2, 32.0), "threads": (1.2, 16.0)}
# The cluster remembers them beyond any life: a job that took fresh ones at each start would look flat within each.
OF_ALL_LIVES = "transactional ids"
GROWTH = (*OF_A_LIFE, OF_ALL_LIVES)
# Fewer samples say nothing: a third of them would be one or two.
ENOUGH = 6


class Sample(NamedTuple):
    """What was seen at one moment; `life` is the process id of the job's driver, another one after each restart."""

    second: float
    life: int
    figures: dict[str, float]

    def as_text(self) -> str:
        """For the file."""
        return json.dumps(self._asdict())


def look(pid: int, began: float, bootstrap: str, app: str) -> Sample:
    """Sum up the processes of a job, and count its transactional ids."""
    processes = [_process(member) for member in tree(pid)]
    figures = {name: sum(process.get(name, 0.0) for process in processes) for name in ("megabytes", "files", "threads")}
    figures["transactional ids"] = len(transactional_ids(bootstrap, app))
    return Sample(round(time.time() - began, 1), pid, figures)


def _process(pid: int) -> dict[str, float]:
    place = Path(f"/proc/{pid}")
    try:
        lines = (place / "status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        return {
            "megabytes": int(status.get("VmRSS", "0 kB").split()[0]) / 1024,
            "threads": float(status["Threads"]),
            "files": float(len(list((place / "fd").iterdir()))),
        }
    except OSError:  # ended meanwhile
        return {}


def transactional_ids(bootstrap: str, app: str) -> set[str]:
    """The ids of an app that the cluster remembers, from its own log of transactions."""
    consumer = Consumer(consumer_config(bootstrap, isolation="read_uncommitted"))
    try:
        partitions = consumer.list_topics(TRANSACTION_STATE, DEADLINE_SECONDS).topics[TRANSACTION_STATE].partitions
        consumer.assign([TopicPartition(TRANSACTION_STATE, number, OFFSET_BEGINNING) for number in partitions])
        found: dict[str, bool] = {}
        left = set(partitions)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 1.0):
                if message.error():
                    left.discard(message.partition())
                else:
                    found[message.key()[4:].decode(errors="replace")] = message.value() is not None
        return {name for name, lives in found.items() if lives and name.startswith(f"{app}.")}
    finally:
        consumer.close()


def read(path: Path) -> list[Sample]:
    """All samples of a soak, of earlier runs as well."""
    if not path.is_file():
        return []
    return [Sample(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def growth(samples: Iterable[Sample]) -> dict[str, Any]:
    """What has grown, from what to what: of a process within the job's longest life, of the cluster over all lives."""
    every = list(samples)
    lives: dict[int, list[Sample]] = {}
    for sample in every:
        lives.setdefault(sample.life, []).append(sample)
    longest = max(lives.values(), key=len, default=[])
    if len(longest) < ENOUGH:
        return {"too few samples of one life": len(longest)}
    found = {}
    for name, (factor, margin) in OF_A_LIFE.items():
        first, last = _median(_first_third(longest), name), _median(longest[-(len(longest) // 3) :], name)
        if last > first * factor + margin:
            found[name] = (first, last)
    first, most = _median(_first_third(every), OF_ALL_LIVES), max(sample.figures[OF_ALL_LIVES] for sample in every)
    return found | ({OF_ALL_LIVES: (first, most)} if most > first else {})


def _first_third(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The first samples but for the very first, when not all may have begun yet."""
    return samples[1 : 1 + len(samples) // 3]


def _median(samples: Sequence[Sample], name: str) -> float:
    return statistics.median(sample.figures[name] for sample in samples)
