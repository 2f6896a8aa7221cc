"""Checks of the output: brokers, topics, replicas, limits, open transactions."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from confluent_kafka.admin import OffsetSpec

from pipeline.errors import provision_if_new
from pipeline.lanes.provision import LANE_POLICY
from pipeline.lanes.writer import BATCH_OVERHEAD_BYTES
from pipeline.observe.doctor.finding import Finding, fail, of_error, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.lanes.topics import Topic, Topics
    from pipeline.observe.doctor.site import Cluster, Site

PROVISION = "run `pipeline provision`"
SAFE_REPLICAS = 3
SAFE_IN_SYNC = 2
TRANSACTION_STATE = "__transaction_state"
# What a lane record holds beside its ledger: names, numbers, counters by name.
RECORD_BYTES = 2_048


def source_cluster(site: Site) -> Iterator[Finding]:
    """The cluster that is read answers."""
    yield _cluster("source cluster", site.source)


def output_cluster(site: Site) -> Iterator[Finding]:
    """The cluster that is written answers; it may be another one."""
    if site.output is site.source:
        yield ok("output cluster", "the source's")
    else:
        yield _cluster("output cluster", site.output)


def _cluster(what: str, cluster: Cluster) -> Finding:
    if cluster.fault is not None:
        return of_error(what, cluster.fault)
    if cluster.brokers < SAFE_REPLICAS:
        detail = f"{cluster.bootstrap}: {cluster.brokers} broker(s): good for development, one lost disk loses it all"
        return warn(what, detail, f"in production use {SAFE_REPLICAS} brokers or more")
    return ok(what, f"{cluster.bootstrap}: {cluster.brokers} brokers")


def output_topics(site: Site) -> Iterator[Finding]:
    """Everything that is written exists."""
    missing = [name for name in site.written_names if name not in site.written]
    if missing:
        lost = site.settings.lane_topic in missing
        remedy = provision_if_new("app") if lost else f"{PROVISION}, which creates what is missing"
        yield fail("output topics", f"not there: {', '.join(missing)}", remedy)
    there = [f"{name} ({topic.partitions} partitions)" for name, topic in sorted(site.written.items())]
    if there:
        yield ok("output topics", ", ".join(there))


def lane_topic(site: Site) -> Iterator[Finding]:
    """The lane topic never forgets, and has a lane for each source partition."""
    name, lanes, sources = site.lane_topic.name, site.lane_topic.partitions, site.source_topic.partitions
    policy = site.configs[name]["cleanup.policy"]
    if policy != LANE_POLICY:
        remedy = f"kafka-configs --alter --topic {name} --add-config cleanup.policy={LANE_POLICY}"
        yield fail("lane topic", f"{name}: cleanup.policy={policy}: lane records of idle lanes expire", remedy)
    if lanes < sources:
        detail = f"{name}: {lanes} partitions, but the source has {sources}: it has grown"
        remedy = f"{PROVISION}; keys have moved: a re-send of what was sent before may reach another lane"
        yield fail("lane topic", detail, remedy)
    if lanes > sources:
        detail = f"{name}: {lanes} partitions, but the source only {sources}: it belongs to another source"
        yield fail("lane topic", detail, "give the job another app.id")
    if policy == LANE_POLICY and lanes == sources:
        yield ok("lane topic", f"{name}: {LANE_POLICY}, {lanes} partitions as the source")


def replication(site: Site) -> Iterator[Finding]:
    """A lost broker loses nothing that was committed; topics alike are told together."""
    brokers = site.output.brokers
    replicas = [
        (topic.replication, int(site.configs[name]["min.insync.replicas"]), name)
        for name, topic in site.written.items()
    ]
    replicas.append(_transaction_state(site))
    for (copies, in_sync), group in groupby(sorted(replicas), key=lambda row: row[:2]):
        names = ", ".join(name for _, _, name in group)
        yield _replication(f"{names}: replication {copies}, min.insync.replicas {in_sync}", copies, in_sync, brokers)


def _transaction_state(site: Site) -> tuple[int, int, str]:
    found = site.output.topics.describe([TRANSACTION_STATE]).get(TRANSACTION_STATE)
    if found is not None:
        in_sync = site.output.topics.config(TRANSACTION_STATE)["min.insync.replicas"]
        return found.replication, int(in_sync), TRANSACTION_STATE
    # Made by the broker at the first transaction, with these.
    config = site.broker_config
    copies, in_sync = config["transaction.state.log.replication.factor"], config["transaction.state.log.min.isr"]
    return int(copies), int(in_sync), f"{TRANSACTION_STATE} (to be)"


def _replication(detail: str, copies: int, in_sync: int, brokers: int) -> Finding:
    what = "replication"
    if in_sync > copies:
        return fail(what, f"{detail}: nothing can be written", "lower min.insync.replicas below the replication")
    if copies < SAFE_REPLICAS and brokers < SAFE_REPLICAS:
        detail = f"{detail}: all that {brokers} broker(s) can give; good for development"
        return warn(what, detail, "in production use 3 brokers, replication 3, min.insync.replicas 2")
    if copies < SAFE_REPLICAS:
        detail = f"{detail}: a lost disk may lose committed records, though there are {brokers} brokers"
        return fail(what, detail, f"raise the replication to {SAFE_REPLICAS} with kafka-reassign-partitions")
    if in_sync < SAFE_IN_SYNC:
        detail = f"{detail}: a commit may stand on one broker alone, and be lost with it"
        return warn(what, detail, f"kafka-configs --alter --add-config min.insync.replicas={SAFE_IN_SYNC}")
    if in_sync == copies:
        return warn(what, f"{detail}: one broker away stops all writing", f"set min.insync.replicas={copies - 1}")
    return ok(what, detail)


def leader_election(site: Site) -> Iterator[Finding]:
    """No leader may be chosen that lacks committed records."""
    configs = {site.source_topic.name: site.source_config, **site.configs}
    unclean = [name for name, config in configs.items() if config["unclean.leader.election.enable"] == "true"]
    if unclean:
        detail = f"{', '.join(unclean)}: unclean.leader.election.enable=true: a leader may lack committed records"
        yield warn("leader election", detail, "kafka-configs --alter --add-config unclean.leader.election.enable=false")
    else:
        yield ok("leader election", "only replicas in sync may lead")


def transaction_timeout(site: Site) -> Iterator[Finding]:
    """The broker grants the time-out that the settings ask for."""
    asked, granted = site.settings.transaction.timeout_ms, int(site.broker_config["transaction.max.timeout.ms"])
    if asked > granted:
        detail = f"transaction.timeout_ms = {asked}, but the broker grants {granted} (transaction.max.timeout.ms)"
        yield fail("transaction time-out", detail, f"set transaction.timeout_ms to {granted} or less")
    else:
        yield ok("transaction time-out", f"{asked} ms of the broker's {granted} ms")


def record_size(site: Site) -> Iterator[Finding]:
    """A full ledger still fits into one record of the lane topic."""
    name, ledger = site.lane_topic.name, site.settings.dedup.ledger_bytes
    need = ledger + RECORD_BYTES + BATCH_OVERHEAD_BYTES
    topic = int(site.configs[name]["max.message.bytes"])
    detail = f"a full ledger (dedup.ledger_bytes = {ledger}) needs {need} bytes"
    if need > topic:
        remedy = (
            f"kafka-configs --alter --topic {name} --add-config max.message.bytes={need}, or lower dedup.ledger_bytes"
        )
        yield fail("lane record size", f"{detail}, but {name} takes {topic} (max.message.bytes)", remedy)
    else:
        yield ok("lane record size", f"{detail}, {name} takes {topic}")


def open_transactions(site: Site) -> Iterator[Finding]:
    """No reader is held back, neither this job by its upstream, nor those behind it."""
    blocked = blocked_partitions(site.source.topics, site.source_topic)
    for topic in site.written.values():
        blocked += blocked_partitions(site.output.topics, topic)
    if blocked:
        detail = f"read_committed readers wait at {', '.join(blocked)}; usual for a moment while something writes there"
        remedy = 'if it stays beyond its time-out, it hangs: see docs/runbook.md, "Hanging transactions"'
        yield warn("open transactions", detail, remedy)
    else:
        yield ok("open transactions", "none in source, outputs and lanes")


def blocked_partitions(topics: Topics, topic: Topic) -> list[str]:
    """Partitions whose last stable offset lies before their end."""
    partitions = range(topic.partitions)
    stable = topics.offsets(topic.name, partitions, OffsetSpec.latest())
    end = topics.offsets(topic.name, partitions, OffsetSpec.latest(), committed=False)
    return [
        f"{topic.name} [{part}] (offset {stable[part]} of {end[part]})"
        for part in partitions
        if stable[part] < end[part]
    ]
