"""The settings: what runs is what was written, and every refusal names file, key, value and rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from pipeline.errors import BadSettings
from pipeline.rules import parse_start
from pipeline.section import Section
from pipeline.settings import Settings, build, load

if TYPE_CHECKING:
    from pathlib import Path

LONG = "x" * 249
# The least for each of the two that take the shuffled path.
SHUFFLED = {"dedup__strategy": "window", "spark__checkpoint": "x"}
WINDOWS = {"flow__path": "windows", "windows__late": "drop", "spark__checkpoint": "x"}


def values(**changed: Any) -> dict[str, dict[str, Any]]:
    """Return the least that must be given, with some keys (`section__key`) changed."""
    least: dict[str, dict[str, Any]] = {
        "app": {"id": "shop"},
        "source": {"bootstrap": "kafka:9092", "topic": "payments"},
        "output": {"topics": ["receipts", "alerts"], "dead_letter_topic": "dead"},
    }
    for name, value in changed.items():
        section, key = name.split("__")
        least.setdefault(section, {})[key] = value
    return least


def refused(**changed: Any) -> str:
    """Return the line that refuses these values."""
    with pytest.raises(BadSettings) as caught:
        build(values(**changed), "pipeline.toml")
    line = str(caught.value)
    assert "\n" not in line
    return line


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    path = folder / "pipeline.toml"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
[app]
id = "shop"
[source]
bootstrap = "kafka:9092"
topic = "payments"
[output]
topics = ["receipts"]
dead_letter_topic = "dead"
"""


def test_the_least_settings_are_enough_and_name_lanes_and_clusters() -> None:
    settings = build(values())
    assert settings.lane_topic == "shop.payments.lanes"
    assert settings.transactional_id(3) == "shop.payments.3"
    assert settings.group == "shop"
    assert settings.output_bootstrap == "kafka:9092"
    assert build(values(output__bootstrap="other:9092")).output_bootstrap == "other:9092"


def test_settings_are_frozen() -> None:
    settings = build(values())
    with pytest.raises(ValidationError, match="frozen"):
        settings.app.id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changed", "key", "value", "rule"),
    [
        ({"app__id": ""}, "app.id", "''", "1 to 80 small letters, digits, underscores or hyphens, for example"),
        ({"app__id": "Shop"}, "app.id", "'Shop'", "small letters"),
        ({"app__id": "a.b"}, "app.id", "'a.b'", "small letters"),
        ({"app__id": "-a"}, "app.id", "'-a'", "small letters"),
        ({"app__id": "a" * 81}, "app.id", f"'{'a' * 81}'", "1 to 80"),
        ({"app__id": 7}, "app.id", "7", "must be text, in quotes"),
        ({"source__topic": "a b"}, "source.topic", "'a b'", "1 to 249 letters, digits, dots, underscores or hyphens"),
        ({"source__topic": "a\n"}, "source.topic", r"'a\n'", "1 to 249 letters"),
        ({"source__topic": LONG + "x"}, "source.topic", f"'{LONG}x'", "1 to 249"),
        ({"source__start": "early"}, "source.start", "'early'", "must be earliest, latest, a time with its zone"),
        ({"source__start": "time:2026-01-31"}, "source.start", "'time:2026-01-31'", "with its zone"),
        ({"source__start": 'offsets:{"0": -1}'}, "source.start", "'offsets:{\"0\": -1}'", 'offsets:{"0": 42, "1": 17}'),
        ({"source__max_offsets_per_trigger": -1}, "source.max_offsets_per_trigger", "-1", "must be at least 0"),
        (
            {"source__max_offsets_per_trigger": 10**30},
            "source.max_offsets_per_trigger",
            f"{10**30}",
            "at most 1000000000",
        ),
        ({"source__new_partitions": "go"}, "source.new_partitions", "'go'", "must be 'stop' or 'provision'"),
        ({"output__topics": []}, "output.topics", "[]", "must name at least one"),
        ({"output__topics": "receipts"}, "output.topics", "'receipts'", 'must be a list, for example ["a", "b"]'),
        ({"output__topics": ["a", "b/c"]}, "output.topics", "'b/c'", "1 to 249 letters"),
        ({"output__dead_letter_topic": ""}, "output.dead_letter_topic", "''", "1 to 249 letters"),
        ({"output__partitions": "many"}, "output.partitions", "'many'", "must be a whole number"),
        ({"output__partitions": 1.5}, "output.partitions", "1.5", "must be a whole number"),
        ({"output__partitions": True}, "output.partitions", "True", "must not be true or false"),
        ({"output__partitions": 0}, "output.partitions", "0", "must be at least 1"),
        ({"output__partitions": -1}, "output.partitions", "-1", "must be at least 1"),
        ({"output__partitions": 10_001}, "output.partitions", "10001", "must be at most 10000"),
        ({"output__replication": 0}, "output.replication", "0", "must be at least 1"),
        (
            {"output__compression": "zip"},
            "output.compression",
            "'zip'",
            "must be 'none', 'lz4', 'zstd', 'snappy' or 'gzip'",
        ),
        ({"identity__seq": ""}, "identity.seq", "''", "must be 1 to 200 bytes"),
        ({"identity__seq": "ü" * 101}, "identity.seq", f"'{'ü' * 101}'", "must be 1 to 200 bytes"),
        ({"dedup__recent_ids": 0}, "dedup.recent_ids", "0", "must be at least 1"),
        ({"dedup__hashes": -1}, "dedup.hashes", "-1", "must be at least 0"),
        ({"dedup__ledger_bytes": 1_023}, "dedup.ledger_bytes", "1023", "must be at least 1024"),
        ({"dedup__stale": "keep"}, "dedup.stale", "'keep'", "must be 'dead-letter' or 'drop'"),
        ({"dedup__strategy": "any"}, "dedup.strategy", "'any'", "must be 'sequence' or 'window'"),
        ({"dedup__horizon_seconds": 0}, "dedup.horizon_seconds", "0", "must be at least 1"),
        ({"dedup__id_column": ""}, "dedup.id_column", "''", "at least 1 character"),
        ({"flow__path": "shuffled"}, "flow.path", "'shuffled'", "must be 'lanes' or 'windows'"),
        ({"windows__time": ""}, "windows.time", "''", "at least 1 character"),
        ({"windows__watermark_seconds": -1}, "windows.watermark_seconds", "-1", "must be at least 0"),
        ({"windows__ahead_seconds": -1}, "windows.ahead_seconds", "-1", "must be at least 0"),
        ({"windows__late": "keep"}, "windows.late", "'keep'", "must be 'drop', 'aside' or 'correct'"),
        ({"windows__late_topic": "a b"}, "windows.late_topic", "'a b'", "1 to 249 letters"),
        ({"transaction__timeout_ms": 999}, "transaction.timeout_ms", "999", "must be at least 1000"),
        ({"transaction__timeout_ms": 900_001}, "transaction.timeout_ms", "900001", "must be at most 900000"),
        ({"transaction__chunk_rows": 0}, "transaction.chunk_rows", "0", "must be at least 1"),
        ({"transaction__connections": "few"}, "transaction.connections", "'few'", "must be 'all' or 'needed'"),
        ({"transaction__chunk_seconds": 0}, "transaction.chunk_seconds", "0", "must be more than 0"),
        ({"transaction__chunk_seconds": float("nan")}, "transaction.chunk_seconds", "nan", "must be a finite number"),
        ({"transaction__chunk_seconds": "soon"}, "transaction.chunk_seconds", "'soon'", "must be a number"),
        ({"codec__input": "xml"}, "codec.input", "'xml'", "must be 'avro', 'json' or 'bytes'"),
        ({"codec__max_depth": 1000}, "codec.max_depth", "1000", "must be at most 200"),
        ({"spark__trigger_seconds": -1}, "spark.trigger_seconds", "-1", "must be at least 0"),
        ({"spark__driver_memory": "1"}, "spark.driver_memory", "'1'", "a number with a unit, for example 512m or 2g"),
        (
            {"spark__master": "local[4]"},
            "spark.master",
            "'local[4]'",
            "must be local[tasks,tries], for example local[4,4]",
        ),
        ({"metrics__address": "a b"}, "metrics.address", "'a b'", "must be an address or a host name"),
        ({"client__request_timeout_ms": -1}, "client.request_timeout_ms", "-1", "must be at least 0"),
        ({"client__connect_timeout_ms": 120_001}, "client.connect_timeout_ms", "120001", "must be at most 120000"),
        ({"metrics__port": 65_536}, "metrics.port", "65536", "must be at most 65535"),
    ],
)
def test_a_value_that_breaks_its_rule_is_refused_with_file_key_value_and_rule(
    changed: dict[str, Any], key: str, value: str, rule: str
) -> None:
    line = refused(**changed)
    assert line.startswith(f"pipeline.toml: {key} = {value}: ")
    assert rule in line


@pytest.mark.parametrize("master", ["local[0,0]", "local[0,4]", "local[4,0]", "local[*,0]", "local-cluster[0,1,1024]"])
def test_a_master_without_a_task_or_a_try_is_refused(master: str) -> None:
    assert refused(spark__master=master).startswith(f"pipeline.toml: spark.master = '{master}': must be local[tasks,")


@pytest.mark.parametrize("master", ["local[1,1]", "local[*,4]", "local-cluster[2,1,1024]", "spark://host:7077", "yarn"])
def test_masters_of_all_kinds_are_taken(master: str) -> None:
    assert build(values(spark__master=master)).spark.master == master


def test_a_pause_between_batches_is_free_where_nobody_asks_whether_the_job_is_ready() -> None:
    assert build(values(spark__trigger_seconds=3_600)).spark.trigger_seconds == 3_600
    assert build(values(spark__trigger_seconds=119, metrics__port=9_108)).metrics.port == 9_108


@pytest.mark.parametrize(
    "bootstrap", ["kafka:9092", "a:1,b-2.example.org:65535", "10.0.0.1:9092", "[::1]:9092", "my_kafka:9092"]
)
def test_addresses_of_all_usual_kinds_are_taken(bootstrap: str) -> None:
    assert build(values(source__bootstrap=bootstrap)).source.bootstrap == bootstrap


@pytest.mark.parametrize(
    "bootstrap",
    ["", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "a:1,", "a:1, b:2", "a:1;b:2", "kafka:9092\n"],
)
def test_a_malformed_address_is_refused(bootstrap: str) -> None:
    assert "source.bootstrap = " in refused(source__bootstrap=bootstrap)
    if bootstrap:
        assert "host:port, several parted by commas" in refused(output__bootstrap=bootstrap)


@pytest.mark.parametrize(
    "bootstrap",
    [
        "user:s3cret@kafka:9092",
        "SASL_SSL://user:s3cret@kafka:9092",
        "user:with/s3cret@kafka:9092",
        "user:with@s3cret@kafka:9092",
        "a:1,user:with,s3cret@kafka:9092",
        "user:line\ns3cret@kafka:9092",
    ],
)
@pytest.mark.parametrize("section", ["source", "output"])
def test_a_password_in_an_address_is_refused_and_never_repeated(section: str, bootstrap: str) -> None:
    line = refused(**{f"{section}__bootstrap": bootstrap})
    assert f"{section}.bootstrap = '***@kafka:9092'" in line
    assert "no user, no password" in line
    assert "s3cret" not in line


def test_a_password_in_place_of_a_section_is_not_repeated() -> None:
    with pytest.raises(BadSettings, match=r"^settings: source: must be a section with keys of its own: \[source\]$"):
        build({**values(), "source": "user:s3cret@kafka:9092"})


def test_the_value_of_an_unknown_key_is_not_repeated() -> None:
    line = refused(source__surprise="s3cret")
    assert "s3cret" not in line
    assert line.startswith("pipeline.toml: source.surprise: unknown; known are bootstrap, topic, start,")


def test_a_missing_key_does_not_repeat_its_neighbours() -> None:
    given = values(source__bootstrap="kafka:9092")
    del given["source"]["topic"]
    with pytest.raises(BadSettings, match=r"^settings: source\.topic: missing; it has no default$"):
        build(given)


def test_a_missing_section_is_named() -> None:
    given = values()
    del given["output"]
    with pytest.raises(BadSettings, match=r"^settings: output: missing; it has no default$"):
        build(given)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"source__topics": "payments"}, "source.topics: unknown; did you mean topic?"),
        ({"transaction__chunk_second": 3}, "transaction.chunk_second: unknown; did you mean chunk_seconds?"),
        ({"outputs__topics": []}, "outputs: unknown; did you mean output?"),
        ({"kafka__topic": "x"}, "kafka: unknown; known are app, source, output, flow, windows, identity, dedup,"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(changed: dict[str, Any], line: str) -> None:
    assert refused(**changed).startswith(f"pipeline.toml: {line}")


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"output__topics": ["payments"]}, "output.topics = 'payments' is the same topic as source.topic = 'payments'"),
        ({"output__topics": ["a", "a"]}, "output.topics = 'a' is the same topic as output.topics = 'a'"),
        (
            {"output__dead_letter_topic": "alerts"},
            "output.dead_letter_topic = 'alerts' is the same topic as output.topics",
        ),
        (
            {"source__topic": "pay.v1", "output__topics": ["pay_v1"]},
            "output.topics = 'pay_v1' differs only in . and _, and clashes in metrics, with source.topic = 'pay.v1'",
        ),
        (
            {"output__topics": ["shop.payments.lanes"]},
            "<app.id>.<source.topic>.lanes = 'shop.payments.lanes' is the same topic as output.topics",
        ),
        ({"source__topic": "__consumer_offsets"}, "source.topic = '__consumer_offsets': reserved by Kafka"),
        ({"output__topics": [".."]}, "output.topics = '..': reserved by Kafka"),
        (
            {"source__topic": LONG},
            f"<app.id>.<source.topic>.lanes = 'shop.{LONG}.lanes': 260 characters, but Kafka takes 249",
        ),
        ({"identity__seq": "txn-id"}, "identity.seq = 'txn-id' is the same header as identity.txn_id"),
        (
            {"transaction__timeout_ms": 8_000},
            "transaction.chunk_seconds = 5: must be at most half of transaction.timeout_ms = 8000",
        ),
        ({"codec__output_framing": "confluent"}, "codec.registry_url = '': framed values need it"),
        ({"dedup__hashes": 8, "dedup__recent_ids": 7}, "dedup.hashes = 8: must be at most dedup.recent_ids = 7"),
        (
            {"spark__trigger_seconds": 120, "metrics__port": 9108},
            "spark.trigger_seconds = 120: must be less than metrics.ready_seconds = 120",
        ),
        (
            {"codec__input": "bytes", "codec__input_framing": "confluent", "codec__registry_url": "http://registry"},
            "codec.input_framing = 'confluent': codec.input = 'bytes' takes values as they are; use 'plain'",
        ),
        (
            {"flow__path": "windows", "dedup__strategy": "window", "spark__checkpoint": "x"},
            "dedup.strategy = 'window': Spark has one watermark for a query, and windows of event time need it",
        ),
        ({"dedup__strategy": "window"}, "spark.checkpoint = '': on the shuffled path the state is in the checkpoint"),
        (
            {"flow__path": "windows", "spark__checkpoint": "x"},
            "windows.late_topic = 'late': late events are written there; add it to output.topics",
        ),
        (
            {**SHUFFLED, "delivery__semantics": "at-least-once"},
            "delivery.semantics = 'at-least-once': with dedup.strategy = 'window' delivery is always 'exactly-once'",
        ),
        (
            {**SHUFFLED, "delivery__semantics": "at-most-once"},
            "delivery.semantics = 'at-most-once': with dedup.strategy = 'window' delivery is always 'exactly-once'",
        ),
        (
            {**WINDOWS, "delivery__semantics": "at-least-once"},
            "delivery.semantics = 'at-least-once': with flow.path = 'windows' delivery is always 'exactly-once'",
        ),
        (
            {**WINDOWS, "delivery__atomicity": "batch"},
            "delivery.atomicity = 'batch': with flow.path = 'windows' each lane has its own transaction; use 'lane'",
        ),
        (
            {**WINDOWS, "source__new_partitions": "provision"},
            "source.new_partitions = 'provision': with flow.path = 'windows' results would change their lanes",
        ),
        (
            {**SHUFFLED, "spark__master": "spark://host:7077"},
            "spark.checkpoint = 'x': a path is each machine's own, but all executors of spark://host:7077 must see",
        ),
        (
            {**SHUFFLED, "reference__topic": "accounts", "reference__schema_file": "x"},
            "reference.topic = 'accounts': no enrichment with dedup.strategy = 'window'",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changed: dict[str, Any], line: str) -> None:
    assert refused(**changed).startswith(f"pipeline.toml: {line}")


@pytest.mark.parametrize("path", [SHUFFLED, WINDOWS])
def test_the_shuffled_path_is_taken_with_the_delivery_that_it_has(path: dict[str, Any]) -> None:
    settings = build(values(**path, delivery__semantics="exactly-once", delivery__atomicity="lane"))
    assert settings.shuffled
    assert not settings.late_topic


@pytest.mark.parametrize("place", ["hdfs://name/x", "s3a://bucket/x", "file:///mnt/x"])
def test_state_on_a_cluster_is_kept_where_all_executors_see_it(place: str) -> None:
    assert build(values(**{**SHUFFLED, "spark__checkpoint": place}, spark__master="yarn")).shuffled
    assert not build(values(spark__checkpoint="x", spark__master="yarn")).shuffled


def test_late_events_have_a_topic_only_where_they_are_kept() -> None:
    kept = {**WINDOWS, "windows__late": "aside", "windows__late_topic": "alerts"}
    assert build(values(**kept)).late_topic == "alerts"
    assert not build(values(windows__late_topic="alerts")).late_topic


def test_a_chunk_of_half_the_time_out_is_taken() -> None:
    assert build(values(transaction__timeout_ms=10_000)).transaction.chunk_seconds == 5.0


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("time:1970-01-01T00:00:01+00:00", 1_000),
        ("time:2026-01-31T08:00:00Z", 1_769_846_400_000),
        ("time:2026-01-31T09:00:00+01:00", 1_769_846_400_000),
        ('offsets:{"0": 42, "1": 0}', {0: 42, 1: 0}),
    ],
)
def test_the_start_of_new_lanes_is_understood(text: str, start: object) -> None:
    assert parse_start(build(values(source__start=text)).source.start) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time:",
        "time:now",
        # Kafka would take the milliseconds -1 for the end of the log.
        "time:1969-12-31T23:59:59.999+00:00",
        "offsets:",
        "offsets:{}",
        "offsets:[1]",
        "offsets:7",
        'offsets:{"0": true}',
        'offsets:{"0": 1.0}',
        'offsets:{"0": "1"}',
        'offsets:{"-1": 1}',
        'offsets:{"a": 1}',
    ],
)
def test_a_start_that_is_not_understood_is_refused_before_anything_starts(text: str) -> None:
    assert refused(source__start=text).startswith("pipeline.toml: source.start = ")


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    environ = {
        "PIPELINE_SOURCE__TOPIC": "refunds",
        "PIPELINE_OUTPUT__TOPICS": "a,b",
        "PIPELINE_OUTPUT__PARTITIONS": "7",
        "PIPELINE_DEDUP__STALE": "drop",
        "PIPELINE_SETTINGS": "not a setting",
        "OTHER_SOURCE__TOPIC": "ignored",
    }
    settings = load(written(tmp_path, GOOD), environ)
    assert settings.source.topic == "refunds"
    assert settings.output.topics == ("a", "b")
    assert settings.output.partitions == 7
    assert settings.dedup.stale == "drop"
    assert settings.source.bootstrap == "kafka:9092"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("PIPELINE_KAFKA__TOPIC", "x", "environment variable PIPELINE_KAFKA__TOPIC: kafka: unknown; known are app,"),
        (
            "PIPELINE_SOURCE__TOPICS",
            "x",
            "environment variable PIPELINE_SOURCE__TOPICS: source.topics: unknown; did",
        ),
        ("PIPELINE_SOURCE__", "x", "environment variable PIPELINE_SOURCE__: source.: unknown; known are bootstrap,"),
        (
            "PIPELINE_OUTPUT__PARTITIONS",
            "x",
            "environment variable PIPELINE_OUTPUT__PARTITIONS: output.partitions = 'x': must be a whole number",
        ),
        (
            "PIPELINE_OUTPUT__TOPICS",
            "a, b",
            "environment variable PIPELINE_OUTPUT__TOPICS: output.topics = ' b': must be 1 to 249",
        ),
        (
            "PIPELINE_OUTPUT__DEAD_LETTER_TOPIC",
            "payments",
            "environment variable PIPELINE_OUTPUT__DEAD_LETTER_TOPIC: output.dead_letter_topic = 'payments' is the",
        ),
    ],
)
def test_a_refused_value_of_the_environment_names_its_variable(
    tmp_path: Path, name: str, value: str, line: str
) -> None:
    with pytest.raises(BadSettings, match="^" + re.escape(line)):
        load(written(tmp_path, GOOD), {name: value})


def test_the_file_is_blamed_for_what_stands_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("kafka:9092", "kafka"))
    with pytest.raises(BadSettings, match=f"^{re.escape(str(path))}: source.bootstrap = 'kafka': "):
        load(path, {"PIPELINE_SOURCE__TOPIC": "refunds"})


def test_a_section_that_is_none_is_refused_also_with_the_environment_over_it(tmp_path: Path) -> None:
    path = written(tmp_path, "source = 'x'\n" + GOOD.replace("[source]", "[other]"))
    with pytest.raises(BadSettings, match=f"^{re.escape(str(path))}: source: must be a section"):
        load(path, {"PIPELINE_SOURCE__TOPIC": "refunds"})


def test_a_file_that_is_not_there_a_folder_or_no_toml_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"nowhere\.toml: no such settings file; give one with --settings"):
        load(tmp_path / "nowhere.toml", {})
    with pytest.raises(BadSettings, match=r"the settings file cannot be read: Is a directory"):
        load(tmp_path, {})
    with pytest.raises(BadSettings, match=r"not valid TOML: .*line 1"):
        load(written(tmp_path, "[app\n"), {})
    (tmp_path / "latin.toml").write_bytes(b"id = '\xe9'")
    with pytest.raises(BadSettings, match=r"latin\.toml: not valid TOML"):
        load(tmp_path / "latin.toml", {})


def test_a_variable_with_one_underscore_too_few_is_refused_unless_kubernetes_made_it(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with pytest.raises(BadSettings, match=r"PIPELINE_SOURCE_TOPIC: not a setting: .*: PIPELINE_SOURCE__TOPIC$"):
        load(path, {"PIPELINE_SOURCE_TOPIC": "refunds"})
    load(path, {"PIPELINE_METRICS_PORT": "tcp://10.0.0.1:9108", "PIPELINE_MUTANT": "x"})


def test_every_number_has_a_range_and_every_time_and_size_its_unit() -> None:
    for section, field in Settings.model_fields.items():
        kind = field.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Section)
        for key, one in kind.model_fields.items():
            if one.annotation not in (int, float):
                continue
            bounds = {type(bound).__name__ for bound in one.metadata}
            assert bounds & {"Ge", "Gt"}, f"{section}.{key}"
            assert "Le" in bounds, f"{section}.{key}"
            counted = ("_ids", "_rows", "_records", "_keys", "_items", "_depth", "_trigger")
            plain = ("hashes", "partitions", "replication", "port")
            assert key.endswith(("_ms", "_seconds", "_bytes", *counted, *plain)), f"{section}.{key}"


def test_every_default_obeys_its_own_rule() -> None:
    settings = build(values())
    assert Settings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("lanes", "most"), [(1, 450_000), (8, 450_000), (9, 506_250), (64, 3_600_000), (1_000, 3_600_000)]
)
def test_a_batch_is_larger_the_more_lanes_share_it(lanes: int, most: int) -> None:
    assert build(values()).most_offsets(lanes) == most


@pytest.mark.parametrize("changed", [{"delivery__atomicity": "batch"}, SHUFFLED, WINDOWS])
def test_a_batch_that_is_not_cut_into_chunks_is_no_larger_for_more_lanes(changed: dict[str, Any]) -> None:
    assert build(values(**changed)).most_offsets(64) == 450_000


def test_a_batch_has_no_more_than_was_said() -> None:
    assert build(values(source__max_offsets_per_trigger=7)).most_offsets(64) == 7
