"""`python -m bench.codec`: decode and encode by Arrow batch against plain fastavro, value by value, in one run.

Plain fastavro makes one dict for each value, with logical types as Python objects, and nothing is checked. The codec
goes on from there to Arrow columns, and bounds hostile bytes. Each side runs in turn with the other; the best of
several rounds counts.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa

from pipeline.avro.decode import Decoder, Reader
from pipeline.avro.encode import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 10_000
ROUNDS = 9
WANTED = 0.8
WANTED_HOSTILE = 0.5
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "payments": {"id": "string", "account": "string", "amount": DECIMAL, "currency": "string", "at": TIME},
    "plain types": {"id": "string", "count": "int", "total": "long", "ratio": "double", "ok": "boolean"},
    "nested": {"id": "string", "tags": {"type": "array", "items": "string"}, "note": ["null", "string"], "at": TIME},
}


def schema(fields: dict[str, Any]) -> dict[str, Any]:
    """A record of these fields."""
    return {"type": "record", "name": "Event", "fields": [{"name": name, "type": fields[name]} for name in fields]}


def records(fields: dict[str, Any], seed: int = 1) -> list[dict[str, Any]]:
    """Values as plain fastavro takes them."""
    chance = random.Random(seed)  # noqa: S311  the same values in each run
    made: dict[str, Callable[[int], Any]] = {
        "id": lambda row: f"till-{row % 8}-{row}",
        "account": lambda row: f"account-{row % 5_000}",
        "amount": lambda _: Decimal(chance.randrange(10_000_000)).scaleb(-2),
        "currency": lambda _: "EUR",
        "at": lambda row: datetime.fromtimestamp(1_760_000_000 + row, UTC),
        "count": lambda row: row,
        "total": lambda row: row * 1_000_003,
        "ratio": lambda _: chance.random(),
        "ok": lambda row: row % 2 == 0,
        "tags": lambda row: [f"tag-{place}" for place in range(row % 4)],
        "note": lambda row: None if row % 3 else f"note {row}",
    }
    return [{name: made[name](row) for name in fields} for row in range(ROWS)]


def best(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Values per second of CPU time of each, the best of several rounds: other work on the machine matters little."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.process_time()
            call()
            seconds[name].append(time.process_time() - started)
    return {name: ROWS / min(found) for name, found in seconds.items()}


def plain_decode(parsed: Any, values: list[bytes]) -> list[Any]:
    """What anybody would write."""
    return [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values]


def plain_encode(parsed: Any, items: list[dict[str, Any]]) -> list[bytes]:
    """What anybody would write."""
    found = []
    for item in items:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, item)
        found.append(stream.getvalue())
    return found


def measure(name: str) -> dict[str, float]:
    """Values per second of both sides, for one schema."""
    chosen = schema(SCHEMAS[name])
    parsed, items = fastavro.parse_schema(chosen), records(SCHEMAS[name])
    values = plain_encode(parsed, items)
    reader = Reader.of(chosen)
    decoder, encoder = Decoder(reader), Encoder(chosen)
    columns, errors = decoder.decode(values)
    if any(errors):
        msg = f"{name}: {next(filter(None, errors))}"
        raise SystemExit(msg)
    struct = pa.StructArray.from_arrays(columns, fields=list(reader.type))
    hostile = [b"\x80" * 12 if row % 100 == 0 else value for row, value in enumerate(values)]
    return best(
        {
            "plain decode": lambda: plain_decode(parsed, values),
            "decode": lambda: decoder.decode(values),
            "decode, 1 % hostile": lambda: decoder.decode(hostile),
            "plain encode": lambda: plain_encode(parsed, items),
            "encode": lambda: encoder.encode(struct),
        }
    )


def main() -> None:
    """Print a table, or JSON; ends with 1 if a ratio is too small."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    enough = True
    print("| schema | decode / plain | encode / plain | with 1 % hostile / clean | decode per second |")
    print("|---|---|---|---|---|")
    for name in SCHEMAS:
        rates = measure(name)
        ratios = {
            "decode": rates["decode"] / rates["plain decode"],
            "encode": rates["encode"] / rates["plain encode"],
            "hostile": rates["decode, 1 % hostile"] / rates["decode"],
        }
        enough &= min(ratios["decode"], ratios["encode"]) >= WANTED and ratios["hostile"] >= WANTED_HOSTILE
        if as_json:
            print(json.dumps({"schema": name, **rates, **ratios}))
        else:
            shown = " | ".join(f"{ratio:.0%}" for ratio in ratios.values())
            print(f"| {name} | {shown} | {rates['decode']:,.0f} |")
    sys.exit(0 if enough else 1)


if __name__ == "__main__":
    main()
