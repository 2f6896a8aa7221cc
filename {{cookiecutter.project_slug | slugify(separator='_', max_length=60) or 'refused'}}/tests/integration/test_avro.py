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
from tests.support.registry import running_registry

from pipeline.avro.framed import head
from pipeline.errors import RegistryAway, SafeStop
from pipeline.flow.codec import codec_of
from pipeline.flow.expected import expected_outputs
from pipeline.flow.outputs import emit, output, record
from pipeline.local.malformed import UNDECODABLE_AVRO
from pipeline.local.values import as_avro
from pipeline.observe.audit import audit, ranges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from tests.support.job import Transform

    from pipeline.flow.job import Job
    from pipeline.local.broker import Broker
    from pipeline.observe.progress import Batch
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


def test_framed_values_of_two_versions_wait_for_their_registry_and_are_written_framed(
    broker: Broker, tmp_path: Path
) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="the extra `registry` is not installed")
    older = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "gone", "type": "string"}]}
    with running_registry() as registry:
        framing = {"input_framing": "confluent", "output_framing": "confluent", "registry_seconds": 1.0}
        app = avro_app(broker.bootstrap, tmp_path, codec={**framing, "registry_url": registry.url})
        old, new = registry.add(older), registry.add(SCHEMA)
        value = as_avro(b"p", b"a", 100, 1)
        framed = [
            head(new) + value,
            head(old) + value + b"\x04so",
            head(99) + value,
            b"\x01" + value,
            head(new) + value,
        ]
        app.put([(0, seq, "till", one) for seq, one in enumerate(framed)])
        with pytest.raises(SafeStop, match="run `pipeline provision`, which registers it"):
            app.run(transform=receipts(app.settings))
        codec_of(app.settings).register(lambda _: None)
        registry.mood = "down"
        with pytest.raises(RegistryAway, match=f"schema registry {registry.url}: no answer") as stopped:
            app.run(transform=receipts(app.settings))
        assert stopped.value.exit_code == 7
        registry.mood = "well"

        def fall_silent(_job: Job, _batch: Batch) -> None:
            registry.mood = "down"

        seen = app.run(fall_silent, transform=receipts(app.settings))
        assert seen.lanes[0].counters.dead_letters == {"unknown-schema": 1, "framing": 1}
        registry.mood = "well"
        values = [record.value or b"" for record in app.written(app.settings.output.topics[0])]
        number = registry.add(RECEIPT, f"{app.settings.output.topics[0]}-value")
        assert [value[:5] for value in values] == [head(number)] * 3
        assert_exact(app)


def test_a_registry_that_falls_silent_in_mid_run_stops_the_job_without_a_dead_letter(
    broker: Broker, tmp_path: Path
) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="the extra `registry` is not installed")
    with running_registry() as registry:
        codec = {"input_framing": "confluent", "registry_seconds": 1.0, "registry_url": registry.url}
        app = avro_app(broker.bootstrap, tmp_path, codec=codec)
        number = registry.add(SCHEMA)
        app.put([(0, 0, "till", head(number) + as_avro(b"p", b"a", 100, 1))])
        registry.mood = "nonsense"
        with pytest.raises(RegistryAway) as stopped:
            app.run(transform=receipts(app.settings))
        assert stopped.value.exit_code == 7
        assert app.written(app.settings.output.dead_letter_topic) == []
        registry.mood = "well"
        app.run(transform=receipts(app.settings))
        assert_exact(app)
