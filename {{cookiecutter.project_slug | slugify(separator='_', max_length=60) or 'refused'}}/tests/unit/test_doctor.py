"""The doctor's judgement on figures, without a cluster; on a real one it is tested beside the broker."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.support.reference import settings_for

from pipeline.errors import PipelineError, SafeStop
from pipeline.lanes.topics import Topic
from pipeline.observe import doctor
from pipeline.observe.doctor import Finding, clusters, examine, machine, show
from pipeline.observe.doctor.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "max.message.bytes": "1048588"}


class Cluster:
    """A cluster of some brokers that answers from a table."""

    def __init__(self, brokers: int, topics: dict[str, tuple[Topic, dict[str, str]]]) -> None:
        """Hold what is answered."""
        self.brokers = brokers
        self.topics = self
        self._topics = topics

    def describe(self, names: list[str]) -> dict[str, Topic]:
        """Answer for those that exist."""
        return {name: self._topics[name][0] for name in names if name in self._topics}

    def config(self, name: str) -> dict[str, str]:
        """Answer for a topic that exists."""
        return self._topics[name][1]


def site_of(
    *,
    brokers: int = 3,
    replication: int = 3,
    in_sync: int = 2,
    transaction_state: tuple[int, int] | None = (3, 2),
    **more: Any,
) -> Site:
    """Return surroundings with one output topic; `more` are the settings' or the topics' figures."""
    settings = settings_for("nowhere:1")
    config = {**SAFE, "min.insync.replicas": str(in_sync), **more.get("config", {})}
    names = (*settings.output.topics, settings.output.dead_letter_topic, settings.lane_topic)
    topics = {name: (Topic(name, (1, 2), 3, replication), config) for name in names}
    if transaction_state is not None:
        copies, least = transaction_state
        topics["__transaction_state"] = (
            Topic("__transaction_state", (1, 2), 50, copies),
            {"min.insync.replicas": str(least)},
        )
    site = Site(settings)
    answers = {
        "source": Cluster(brokers, topics),
        "output": Cluster(brokers, topics),
        "_source_topic": Topic(settings.source.topic, (5, 6), 3, 3),
        "source_config": {**SAFE, **more.get("source_config", {})},
        "broker_config": {
            "transaction.max.timeout.ms": "900000",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **more.get("broker_config", {}),
        },
    }
    vars(site).update(answers)
    return site


@pytest.mark.parametrize(
    ("figures", "state", "word"),
    [
        ({}, "ok", "replication 3, min.insync.replicas 2"),
        (
            {"replication": 1, "in_sync": 1},
            "fail",
            "a lost disk may lose committed records, though there are 3 brokers",
        ),
        ({"replication": 2, "in_sync": 1}, "fail", "though there are 3 brokers"),
        ({"replication": 1, "in_sync": 1, "brokers": 1}, "warn", "all that 1 broker(s) can give; good for development"),
        ({"replication": 1, "in_sync": 2, "brokers": 1}, "fail", "nothing can be written"),
        ({"in_sync": 1}, "warn", "a commit may stand on one broker alone"),
        ({"in_sync": 3}, "warn", "one broker away stops all writing"),
    ],
)
def test_replicas_are_judged_together_with_the_number_of_brokers(
    figures: dict[str, Any], state: str, word: str
) -> None:
    findings = list(clusters.replication(site_of(**figures)))
    found = next(finding for finding in findings if "receipts" in finding.detail)
    assert (found.state, word in found.detail) == (state, True)
    assert bool(found.remedy) == (state != "ok")
    assert all(name in found.detail for name in ("alerts", "dead", "app.payments.lanes"))


def test_the_topic_of_transactions_is_judged_too() -> None:
    (alike,) = clusters.replication(site_of())
    assert "__transaction_state" in alike.detail
    weak = [finding for finding in clusters.replication(site_of(transaction_state=(1, 1))) if finding.state == "fail"]
    assert [finding.detail.startswith("__transaction_state: replication 1") for finding in weak] == [True]


def test_before_the_first_transaction_its_topic_is_judged_by_the_brokers_plan() -> None:
    weak = [finding for finding in clusters.replication(site_of(transaction_state=None)) if finding.state == "fail"]
    assert [finding.detail.startswith("__transaction_state (to be): replication 1") for finding in weak] == [True]


@pytest.mark.parametrize(("granted", "state"), [("30000", "ok"), ("29999", "fail")])
def test_the_time_out_of_transactions_must_be_granted(granted: str, state: str) -> None:
    (finding,) = clusters.transaction_timeout(site_of(broker_config={"transaction.max.timeout.ms": granted}))
    assert finding.state == state
    assert "transaction.timeout_ms to 29999" in finding.remedy or state == "ok"


@pytest.mark.parametrize(("taken", "state"), [("920576", "ok"), ("920575", "fail")])
def test_a_full_ledger_must_fit_into_a_lane_record(taken: str, state: str) -> None:
    (finding,) = clusters.record_size(site_of(config={"max.message.bytes": taken}))
    assert finding.state == state
    assert "max.message.bytes=920576" in finding.remedy or state == "ok"


@pytest.mark.parametrize("where", ["config", "source_config"])
def test_an_unclean_leader_is_warned_of(where: str) -> None:
    assert [finding.state for finding in clusters.leader_election(site_of())] == ["ok"]
    unclean: dict[str, Any] = {where: {"unclean.leader.election.enable": "true"}}
    (finding,) = clusters.leader_election(site_of(**unclean))
    assert finding.state == "warn"
    assert ("payments:" in finding.detail) == (where == "source_config")


def test_a_connector_of_another_version_than_spark_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.state for finding in machine.connector(site_of())] in (["ok"], ["warn"])
    monkeypatch.setattr(machine, "version", lambda _: "4.1.0")
    (finding,) = machine.connector(site_of())
    assert (finding.state, finding.detail) == ("fail", "connector 4.0.0, but pyspark 4.1.0")


def test_a_check_that_breaks_prevents_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(_: Site) -> Iterator[Finding]:
        yield Finding("ok", "partly", "this much")
        msg = "what happened; what to do"
        raise SafeStop(msg)

    def defect(_: Site) -> Iterator[Finding]:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "CHECKS", {"partly": partly, "defect": defect, "Python": machine.python})
    first, stopped, broken, python = examine(settings_for())
    assert first == ("ok", "partly", "this much", "")
    assert stopped == ("fail", "partly", "what happened", "what to do")
    assert (broken.state, broken.detail) == ("fail", "could not be checked: ZeroDivisionError()")
    assert (python.state, python.what) == ("ok", "Python")


def test_a_java_that_is_missing_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(doctor, "CHECKS", {"Java": machine.java_version})
    (finding,) = examine(settings_for())
    assert finding.state == "fail"
    assert "JAVA_HOME is /nowhere" in finding.detail
    with pytest.raises(PipelineError):
        list(machine.java_version(site_of()))


def test_lines_are_shown_as_they_are_with_remedies_only_where_something_is_to_be_done() -> None:
    console = Console(file=StringIO(), width=80)
    show([Finding("ok", "a", "fine [red]", "none"), Finding("warn", "b", "topic [0]", "do [this]")], console)
    shown = console.file.getvalue() if isinstance(console.file, StringIO) else ""
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines == ["ok    a  fine [red]", "warn  b  topic [0]", "           -> do [this]", "1 ok, 1 warn, 0 fail"]
