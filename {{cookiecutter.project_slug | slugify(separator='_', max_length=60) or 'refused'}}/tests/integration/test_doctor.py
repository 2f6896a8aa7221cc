"""The doctor on a real broker: what is sound is ok, and each thing that is not gets its line and its remedy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, fresh, wait_until
from tests.support.lanes import App, fill, leave_open, provisioned, settings_for
from tests.support.program import settings_file
from typer.testing import CliRunner

from pipeline import cli
from pipeline.local.events import send
from pipeline.observe.doctor import Finding, examine, site, source

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.local.broker import Broker
    from pipeline.settings import Settings

NOWHERE = "127.0.0.1:1"
Headers = list[tuple[str, bytes | None]]
Sent = list[tuple[bytes | None, bytes | None, Headers]]
STAMP: Headers = [("producer-id", b"upstream"), ("txn-id", b"0"), ("seq", b"0")]
ANY_TIMESTAMP = {"message.timestamp.after.max.ms": str(2**63 - 1)}
# What one embedded node cannot be other than.
OF_ONE_NODE = {"source cluster", "replication"}


def found(settings: Settings) -> dict[str, list[Finding]]:
    """Return all findings by what they are about."""
    by_name = defaultdict(list)
    for finding in examine(settings):
        by_name[finding.what].append(finding)
    return by_name


def only(settings: Settings, what: str) -> Finding:
    """Return the one finding about something."""
    (finding,) = found(settings)[what]
    return finding


def admin_of(settings: Settings) -> AdminClient:
    """Return an admin client."""
    return AdminClient({"bootstrap.servers": settings.source.bootstrap, **QUIET})


def test_sound_surroundings_are_ok_but_for_the_single_node(broker: Broker) -> None:
    app = provisioned(broker.bootstrap, partitions=3)
    fill(broker.bootstrap, app.source.name, [(b"key", b"{}", STAMP)] * 5)
    findings = examine(app.settings)
    assert {finding.what for finding in findings if finding.state != "ok"} == OF_ONE_NODE
    assert {finding.state for finding in findings} == {"ok", "warn"}
    details = {finding.what: finding.detail for finding in findings}
    assert details["source topic"] == f"{app.source.name}: 3 partitions, replication 1"
    assert details["lanes"] == f"3 of topic {app.source.name}, newest run 0, 5 offsets behind"
    assert "isolation.level=read_committed" in details["isolation"]
    assert "librdkafka" in details["packages"]
    assert "version" in details["Java"]


def test_the_doctor_is_json_for_machines_and_ends_well_where_nothing_fails(broker: Broker, tmp_path: Path) -> None:
    file = settings_file(tmp_path, provisioned(broker.bootstrap).settings)
    ended = CliRunner().invoke(cli.app, ["doctor", "-s", str(file), "--json"])
    assert ended.exit_code == 0
    assert {"state": "ok", "what": "output cluster", "detail": "the source's", "remedy": ""} in json.loads(ended.stdout)


def test_without_a_source_topic_the_rest_is_still_examined(broker: Broker) -> None:
    findings = found(settings_for(broker.bootstrap, fresh("none")))
    assert findings["source topic"][0].state == "fail"
    assert "create it" in findings["source topic"][0].remedy
    assert findings["output topics"][0].state == "fail"
    assert "pipeline provision" in findings["output topics"][0].remedy
    assert "would repeat its output" in findings["output topics"][0].remedy, "the lane topic is among them"
    assert findings["transaction time-out"][0].state == "ok"
    unmade = " ".join(finding.detail for finding in findings["not checked"])
    assert "clocks" in unmade
    assert "lanes" in unmade


def test_an_output_cluster_that_is_away_does_not_hide_the_source(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PROBE_SECONDS", 1.0)
    settings = settings_for(broker.bootstrap, create_topic(broker.bootstrap), output={"bootstrap": NOWHERE})
    started = time.monotonic()
    findings = found(settings)
    assert time.monotonic() - started < 40.0
    assert findings["output cluster"][0].state == "fail"
    assert NOWHERE in findings["output cluster"][0].detail
    assert findings["source topic"][0].state == "ok"
    assert findings["keys"][0].state == "ok"
    assert f"cluster {NOWHERE} is away" in findings["not checked"][0].detail


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy=compact"),
        ({"retention.ms": "3600000"}, "(1:00:00): a job that stands for longer loses records"),
        ({"retention.bytes": "1000000"}, "retention.bytes=1000000"),
    ],
)
def test_a_source_that_forgets_is_warned_of(broker: Broker, config: dict[str, str], word: str) -> None:
    topic = create_topic(broker.bootstrap, config=config)
    warned = [one for one in found(settings_for(broker.bootstrap, topic))["source retention"] if one.state == "warn"]
    assert [word in finding.detail for finding in warned] == [True]
    assert "cleanup.policy=delete" in warned[0].remedy or "--alter" in warned[0].remedy


def test_a_lane_topic_that_also_deletes_fails(broker: Broker) -> None:
    settings = settings_for(broker.bootstrap, create_topic(broker.bootstrap))
    create_topic(broker.bootstrap, settings.lane_topic, config={"cleanup.policy": "compact,delete"})
    findings = found(settings)
    assert [finding.state for finding in findings["lane topic"]] == ["fail"]
    assert "cleanup.policy=compact" in findings["lane topic"][0].remedy
    assert "no lane record for partitions [0]" in findings["lanes"][0].detail
    assert "would repeat its output" in findings["lanes"][0].remedy


def test_a_source_that_has_grown_fails_until_it_is_provisioned(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    admin = admin_of(app.settings)
    admin.create_partitions([NewPartitions(app.source.name, 3)])[app.source.name].result(DEADLINE_SECONDS)
    wait_until(lambda: "3 partitions" in only(app.settings, "source topic").detail, what="three partitions")
    finding = only(app.settings, "lane topic")
    assert finding.state == "fail"
    assert "1 partitions, but the source has 3: it has grown" in finding.detail
    assert finding.remedy.startswith("run `pipeline provision`")


def test_a_source_that_was_created_anew_fails(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    admin = admin_of(app.settings)
    admin.delete_topics([app.source.name])[app.source.name].result(DEADLINE_SECONDS)
    wait_until(lambda: app.source.name not in admin.list_topics(timeout=DEADLINE_SECONDS).topics, what="deletion")
    create_topic(broker.bootstrap, app.source.name)
    finding = only(app.settings, "lanes")
    assert finding.state == "fail"
    assert "deleted and created anew" in finding.detail
    assert "another app.id" in finding.remedy


def test_records_that_were_deleted_unread_fail_with_the_command_that_accepts_it(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    fill(broker.bootstrap, app.source.name, [(b"key", b"{}", STAMP)] * 5)
    place = TopicPartition(app.source.name, 0, 3)
    admin = admin_of(app.settings)  # named: a client that is not held is destroyed before it answers
    admin.delete_records([place])[place].result(DEADLINE_SECONDS)
    finding = only(app.settings, "lanes")
    assert finding.state == "fail"
    assert f"{app.source.name} [0]: offsets 0 to 2 were deleted" in finding.detail
    assert "pipeline provision --accept-loss" in finding.remedy


def test_an_open_transaction_is_named_by_partition_and_not_disturbed(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    assert only(app.settings, "open transactions").state == "ok"
    held = leave_open(app)
    finding = only(app.settings, "open transactions")
    assert finding.state == "warn"
    assert f"{app.out} [0]" in finding.detail
    assert f"{app.settings.lane_topic} [0]" in finding.detail
    # Nobody was fenced: its writer can still end it.
    held.commit()
    wait_until(lambda: only(app.settings, "open transactions").state == "ok", what="no open transaction")


def test_an_upstream_that_left_a_transaction_open_is_named(broker: Broker) -> None:
    app = provisioned(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": fresh("up"), **QUIET})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(app.source.name, b"{}", b"key")
    producer.flush(DEADLINE_SECONDS)
    assert f"{app.source.name} [0]" in only(app.settings, "open transactions").detail
    producer.abort_transaction(DEADLINE_SECONDS)


@pytest.mark.parametrize(("ahead", "state"), [(3_600, "warn"), (0, "ok")])
def test_a_record_from_the_future_is_warned_of(broker: Broker, ahead: int, state: str) -> None:
    topic = create_topic(broker.bootstrap, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    producer.produce(topic, b"{}", b"key", 1, timestamp=int((time.time() + ahead) * 1000))
    assert producer.flush(DEADLINE_SECONDS) == 0
    finding = only(settings_for(broker.bootstrap, topic), "clocks")
    assert finding.state == state
    assert ("ahead of this machine's clock" in finding.detail) == (state == "warn")


@pytest.mark.bad_input("record timestamp that Spark cannot hold (year 300,000)", "refused by the brokers, see doctor")
def test_a_topic_that_takes_timestamps_which_spark_cannot_hold_is_warned_of(broker: Broker) -> None:
    sound, open_to_all = create_topic(broker.bootstrap), create_topic(broker.bootstrap, config=ANY_TIMESTAMP)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    refused: list[str] = []
    for topic in (sound, open_to_all):
        producer.produce(
            topic,
            b"{}",
            b"key",
            timestamp=2**62,
            on_delivery=lambda error, message: refused.append(message.topic()) if error else None,
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert refused == [sound]
    assert only(settings_for(broker.bootstrap, sound), "timestamps").state == "ok"
    findings = found(settings_for(broker.bootstrap, open_to_all))
    assert findings["timestamps"][0].state == "warn"
    assert "--add-config message.timestamp.after.max.ms=3600000" in findings["timestamps"][0].remedy
    assert findings["clocks"][0].state == "warn"


def test_records_without_key_or_identity_are_warned_of_with_their_share(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    twice: Headers = [*STAMP, ("seq", b"1")]
    signed: Headers = [("producer-id", b"upstream"), ("txn-id", b"+1"), ("seq", b"0")]
    sound: Sent = [(b"key", b"{}", STAMP)] * 4
    spoilt: Sent = [(None, b"{}", STAMP), (b"key", b"{}", twice), (b"key", b"{}", signed), (None, b"", [])]
    fill(broker.bootstrap, topic, [*sound, *spoilt])
    findings = found(settings_for(broker.bootstrap, topic))
    (keys,), (stamps,) = findings["keys"], findings["identity headers"]
    assert (keys.state, stamps.state) == ("warn", "warn")
    assert keys.detail.startswith("2 of the 8 newest records (25.0%) have no key")
    assert stamps.detail.startswith("3 of the 8 newest records (37.5%) have no valid identity")
    assert "producer-id, producer-epoch, txn-id, seq" in stamps.remedy


def test_the_sample_is_of_the_newest_records_and_bounded(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=3)
    old: Sent = [(None, b"{}", [])] * 1_000
    new: Sent = [(b"key", b"{}", STAMP)] * source.SAMPLE
    fill(broker.bootstrap, topic, [*old, *new])
    findings = found(settings_for(broker.bootstrap, topic))
    assert findings["keys"][0] == ("ok", "keys", f"all of the {source.SAMPLE // 3} newest records have one", "")
    assert findings["identity headers"][0].state == "ok"


def test_the_sample_passes_over_aborted_records(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap, partitions=2)
    summary = send(broker.bootstrap, topic, count=300)
    sampled = source.sample(site.Site(settings_for(broker.bootstrap, topic)))
    assert 0 < sampled.records <= min(summary.sent, source.SAMPLE)
    assert sampled.without_identity > 0


def test_a_lane_record_that_is_nearly_too_large_is_warned_of(broker: Broker) -> None:
    app: App = provisioned(broker.bootstrap, dedup={"ledger_bytes": 1_024})
    size = len(app.recalled().value)
    limit = int(size / 0.9)
    alter(app.settings, app.settings.lane_topic, "max.message.bytes", str(limit))
    wait_until(lambda: len(found(app.settings)["lanes"]) == 2, what="a second line about lanes")
    warned = found(app.settings)["lanes"][1]
    assert warned.state == "warn"
    assert f"{size} bytes, the topic takes {limit}" in warned.detail


def alter(settings: Settings, topic: str, key: str, value: str) -> None:
    """Change one entry of a topic's configuration."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(settings)
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)


@pytest.mark.fault("A1")
def test_a_run_against_an_absent_cluster_ends_within_a_minute_and_starts_no_spark(tmp_path: Path) -> None:
    file = settings_file(tmp_path, settings_for(NOWHERE, "payments"))
    command = [sys.executable, "-m", "pipeline", "run", "-s", str(file)]
    started = time.monotonic()
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert time.monotonic() - started < 60.0
    assert (ended.returncode, ended.stdout) == (6, "")
    assert ended.stderr.count("\n") == 1
    assert f"(cluster {NOWHERE}); check the address and that the brokers run" in ended.stderr
