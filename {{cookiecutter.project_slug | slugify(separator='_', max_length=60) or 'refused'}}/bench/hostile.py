"""`python -m bench.hostile`: whole jobs on a broker of their own, with hostile values among the good ones, in one run.

Speed: the same good payments are processed with one hostile value in a hundred, and without any, in turn; each pair
is a ratio of good records per second, and at least half is wanted. Memory: the largest values that are allowed, lists
of as many items as are allowed, claims of 10^9 items, and batches of some kilobytes that unpack to some hundred
megabytes; no Python worker may ever take 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, struct, to_json

from bench.codec import DECIMAL, TIME, plain_encode, schema
from bench.machine import WORKERS, part_of
from pipeline.flow.job import Job
from pipeline.flow.outputs import emit, output
from pipeline.lanes.provision import provision
from pipeline.local.broker import Broker
from pipeline.local.malformed import stamp
from pipeline.local.processes import tree
from pipeline.observe.progress import Observer
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pipeline.lanes.record import LaneRecord
    from pipeline.observe.progress import Batch

PARTITIONS = 2
RECORDS = 100_000
ROUNDS = 5
WANTED = 0.5
CEILING = 1024**3
END_SECONDS = 120.0
PART = {"type": "record", "name": "Part", "fields": [{"name": "number", "type": "int"}]}
FIELDS: dict[str, Any] = {
    "id": "string",
    "account": "string",
    "amount": DECIMAL,
    "currency": "string",
    "at": TIME,
    "parts": {"type": "array", "items": PART},
}
LARGEST = 1_040_000
MOST_ITEMS = 100_000
# A payment but for its list: id and account of one letter, the amount 0.01, EUR, the time 1.
HEAD = b"\x02i\x02a\x02\x01\x06EUR\x02"
BILLION_ITEMS = HEAD + b"\x80\xa8\xd6\xb9\x07"
HOSTILE = (
    b"",
    b"\x80" * 12,
    HEAD,
    HEAD + b"\x00behind",
    BILLION_ITEMS,
    b"\x80\x80\x80\x80\x80\x40",
    b"\x04\xff\xfe\x02a\x02\x01\x06EUR\x02\x00",
    b"\x82" + b"\x80" * 2_000 + b"\x00",
)
# Some kilobytes are then enough for some hundred megabytes: the broker bounds a batch as it was sent.
BOMB = {"compression.type": "zstd", "message.max.bytes": 1_000_000_000, "batch.size": 400_000_000, "linger.ms": 60_000}


@dataclass
class Seen:
    """What a job told: seconds of its batches, and the most memory of each of its Python workers."""

    seconds: float = 0.0
    peaks: dict[int, int] = field(default_factory=dict)
    lanes: dict[int, LaneRecord] = field(default_factory=dict)

    def on_start(self, run: int, lanes: Mapping[int, LaneRecord]) -> None:
        """Nothing was done yet."""

    def on_batch(self, batch: Batch) -> None:
        """The workers are still there: Spark keeps them for the next batch."""
        self.seconds += batch.seconds
        self.lanes |= batch.lanes
        self.peaks |= dict(workers())

    def count(self, name: str) -> int:
        """A counter of all lanes."""
        return sum(int(getattr(lane.counters, name)) for lane in self.lanes.values())

    @property
    def letters(self) -> int:
        """The dead letters of all lanes."""
        return sum(sum(lane.counters.dead_letters.values()) for lane in self.lanes.values())


def workers() -> Iterator[tuple[int, int]]:
    """The Python workers of this process's Spark, each with the most memory that it ever had, in bytes."""
    for pid in tree(os.getpid()):
        try:
            if part_of(Path(f"/proc/{pid}/cmdline").read_bytes()) == WORKERS:
                status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
                yield pid, int(status.partition("VmHWM:")[2].split()[0]) * 1024
        except (OSError, IndexError):  # ended meanwhile
            continue


def encoded(*items: dict[str, Any]) -> list[bytes]:
    """Payments as plain fastavro writes them; the amount as its digits, the time as its milliseconds."""
    plain = schema({**FIELDS, "amount": "bytes", "at": "long"})
    usual = {"id": "i", "account": "a", "amount": b"\x01", "currency": "EUR", "at": 1, "parts": []}
    return plain_encode(fastavro.parse_schema(plain), [{**usual, **item} for item in items])


def good(count: int) -> list[bytes]:
    """Payments with a few parts each."""
    parts = [[{"number": number} for number in range(length)] for length in range(4)]
    return encoded(
        *({"id": f"till-{row}", "account": f"account-{row % 500}", "parts": parts[row % 4]} for row in range(count))
    )


def with_hostile(values: list[bytes]) -> list[bytes]:
    """The same values, and a hostile one behind each 99 of them, each kind in turn."""
    found = []
    for row, value in enumerate(values, start=1):
        found.append(value)
        if row % 99 == 0:
            found.append(HOSTILE[row // 99 % len(HOSTILE)])
    return found


def large() -> list[bytes]:
    """Values as large as they may be: by bytes, rubbish as well, and by items; and claims of more."""
    long_id, long_list = encoded({"id": "x" * LARGEST}, {"parts": [{"number": 1}] * MOST_ITEMS})
    return [*[long_id] * 300, *[bytes(LARGEST)] * 300, *[long_list] * 300, *[BILLION_ITEMS] * 3_000, *good(20_000)]


def app(bootstrap: str, folder: Path, name: str) -> Settings:
    """A provisioned app on a topic of its own, with Avro in and JSON out."""
    path = folder / "payment.avsc"
    path.write_text(json.dumps(schema(FIELDS)), encoding="utf-8")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(END_SECONDS)
    settings = build(
        {
            "app": {"id": f"bench-{name}"},
            "source": {"bootstrap": bootstrap, "topic": name, "max_poll_records": 100},
            "output": {"topics": (f"{name}-out",), "dead_letter_topic": f"{name}-dead", "replication": 1},
            "codec": {"schema_file": str(path), "input": "avro", "output": "json"},
            "spark": {"master": f"local[{PARTITIONS},4]"},
        }
    )
    provision(settings, lambda _: None)
    return settings


def send(settings: Settings, values: Sequence[bytes], **config: Any) -> None:
    """Send the values to all partitions in turn, each with an identity of its own."""
    failed: list[str] = []
    client = Producer({"bootstrap.servers": settings.source.bootstrap, "linger.ms": 50, **config})
    for seq, value in enumerate(values):
        headers = stamp(b"bench", 0, 0, seq)
        client.produce(
            settings.source.topic,
            value,
            b"key",
            seq % PARTITIONS,
            headers=headers,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        client.poll(0)
    if client.flush(END_SECONDS) or failed:
        raise SystemExit(failed[0] if failed else "not all was sent")


def run(settings: Settings) -> Seen:
    """Run a job until it has caught up."""
    (out,) = settings.output.topics

    def transform(events: DataFrame) -> DataFrame:
        value = to_json(struct("id", "amount", "currency", "at"))
        return events.withColumn("outputs", emit(output(out, key="account", value=value).when(col("amount") > 0)))

    seen = Seen()
    with patch.object(SparkSession, "stop", lambda _: None):  # for the next job: a start costs more than a run
        Job(settings, Observer([seen]), until_caught_up=True, transform=transform).run()
    return seen


def speed(bootstrap: str, folder: Path, rounds: int, records: int) -> list[float]:
    """Good records per second with hostile ones among them, as a share of those without, pair by pair."""
    clean = good(records)
    mixed = with_hostile(clean)
    ratios = []
    for number in range(rounds + 1):
        rates = {}
        for name, values in (("clean", clean), ("mixed", mixed)):
            settings = app(bootstrap, folder, f"{name}-{number}")
            send(settings, values)
            seen = run(settings)
            if seen.letters != len(values) - records:
                msg = f"{seen.letters} dead letters instead of {len(values) - records}"
                raise SystemExit(msg)
            rates[name] = records / seen.seconds
        if number:  # the first pair warms up
            ratios.append(rates["mixed"] / rates["clean"])
    return ratios


def memory(bootstrap: str, folder: Path) -> Seen:
    """Process all that is large at once; the result tells the memory of the workers."""
    settings = app(bootstrap, folder, "large")
    send(settings, large(), **BOMB)
    return run(settings)


def main() -> None:
    """Print both, or JSON; ends with 1 if one is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        ratios = speed(broker.bootstrap, Path(folder), asked.rounds, asked.records)
        seen = memory(broker.bootstrap, Path(folder))
    ratio, peak = statistics.median(ratios), max(seen.peaks.values())
    if asked.json:
        print(json.dumps({"ratios": ratios, "median": ratio, "peak_bytes": peak, "workers": len(seen.peaks)}))
    else:
        spread = f"median of {len(ratios)} pairs, {min(ratios):.0%} to {max(ratios):.0%}"
        print(f"good records per second with 1 % hostile / without: {ratio:.0%} ({spread})")
        print(f"most memory of a Python worker: {peak / 1024**2:.0f} MiB (of {len(seen.peaks)}), 1024 MiB allowed")
    sys.exit(0 if ratio >= WANTED and peak < CEILING else 1)


if __name__ == "__main__":
    main()
