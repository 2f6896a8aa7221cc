"""Whole jobs in Avro on a real broker: the workload with all its faults, exactly once, in one format at both ends."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.sql.functions import col
from tests.support.job import ALERT_ABOVE, SCHEMA, App, new_app

from pipeline.flow.expected import expected_outputs
from pipeline.flow.outputs import emit, output, record
from pipeline.local.malformed import UNDECODABLE_AVRO
from pipeline.local.values import as_avro
from pipeline.observe.audit import audit, ranges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from tests.support.job import Transform

    from pipeline.local.broker import Broker
    from pipeline.settings import Settings

RECEIPT: dict[str, Any] = {**SCHEMA, "name": "Receipt"}


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return an app that reads and writes Avro."""
    return avro_app(broker.bootstrap, tmp_path)


def avro_app(bootstrap: str, folder: Path, **sections: Any) -> App:
    """Create it, with the schemas of its outputs."""
    codec = {"input": "avro", "output": "avro", **sections.pop("codec", {})}
    app = new_app(bootstrap, folder, codec=codec, **sections)
    for topic in app.settings.output.topics:
        (folder / f"{topic}.avsc").write_text(json.dumps(RECEIPT), encoding="utf-8")
    return app


def receipts(settings: Settings) -> Transform:
    """Return a transform of the payments workload with records."""
    receipts, alerts = settings.output.topics
    fields = ("id", "account", "amount", "currency", "at")

    def transform(events: DataFrame) -> DataFrame:
        receipt = output(receipts, key="account", value=record(*fields)).when(col("amount") != 0)
        alert = output(alerts, key="account", value=record(*fields)).when(col("amount") > ALERT_ABOVE)
        return events.withColumn("outputs", emit(receipt, alert))

    return transform


def assert_exact(app: App) -> None:
    """Demand that all of the source was processed, and is there exactly once."""
    settings = app.settings
    result = audit(settings, lambda: expected_outputs(settings, ranges(settings), receipts(settings)), patience=1.0)
    assert result.exact, [result.line, *result.remarks()]
    assert result.caught_up
    assert result.found > 0


def test_the_workload_in_avro_is_written_exactly_once(app: App) -> None:
    app.send(2_000)
    seen = app.run(transform=receipts(app.settings))
    assert_exact(app)
    letters: dict[str, int] = {}
    for lane in seen.lanes.values():
        for reason, count in lane.counters.dead_letters.items():
            letters[reason] = letters.get(reason, 0) + count
    assert {"decode", "trailing", "identity", "conflict"} <= letters.keys()


def test_outputs_are_plain_avro_that_any_reader_decodes(app: App) -> None:
    app.put([(0, 0, "till", as_avro(b"p-1", b"a", 123_456, 1_760_000_000_001))])
    app.run(transform=receipts(app.settings))
    [written] = app.written(app.settings.output.topics[0])
    found = fastavro.schemaless_reader(io.BytesIO(written.value or b""), fastavro.parse_schema(RECEIPT), None)
    assert found["amount"] == Decimal("1234.56")
    assert (found["id"], found["account"], found["at"].microsecond) == ("p-1", "a", 1_000)


def test_undecodable_values_become_dead_letters_with_their_bytes_and_reasons(app: App) -> None:
    sound = as_avro(b"p-1", b"a", 100, 1)
    app.put([(0, seq, "till", value) for seq, value in enumerate([*UNDECODABLE_AVRO, sound])])
    seen = app.run(transform=receipts(app.settings))
    letters = app.written(app.settings.output.dead_letter_topic)
    assert sorted(letter.value or b"" for letter in letters) == sorted(value or b"" for value in UNDECODABLE_AVRO)
    assert seen.lanes[0].counters.dead_letters == {"decode": len(UNDECODABLE_AVRO) - 1, "trailing": 1}
    assert seen.lanes[0].counters.written == 1
    assert_exact(app)
