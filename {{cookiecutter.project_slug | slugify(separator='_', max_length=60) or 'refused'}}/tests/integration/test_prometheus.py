"""A real Prometheus scrapes a real job through a kill and a restart: every panel and every rule finds its data."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

import pytest
from tests.support.job import new_app
from tests.support.prometheus import DASHBOARDS, Panel, Prometheus, panels, promtool, rules, substituted

from pipeline.local.events import send
from pipeline.local.node import free_ports
from pipeline.local.processes import signal_all, tree
from pipeline.observe.watch import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.job import App

    from pipeline.local.broker import Broker

pytestmark = pytest.mark.timeout(600)

# Small batches, so that the kill falls between some and others.
BATCH = 800
FIRST, SECOND = 6_000, 3_000
PARTITIONS = 3
READ = "sum(lane:pipeline_records_read_total:max)"
# The selectors of an expression: a name, recorded or not, with its labels.
SELECTOR = re.compile(r"(?:\w+:)?\b(?:pipeline_\w+|up)\b(?::\w+)?(?:\{[^}]*\})?")
ALERTS = {rule["alert"]: rule["expr"] for rule in rules("alerts.yml")}
RECORDED = [rule["record"] for rule in rules("recording.yml")]
PANELS = panels()


@dataclass(frozen=True)
class Scraped:
    """A job that was killed once, and what Prometheus has seen of it."""

    app: App
    prometheus: Prometheus
    started: float
    ended: float
    sent: int
    metrics: str

    def variables(self) -> dict[str, str]:
        """Values for Grafana's variables, as a browser would put them."""
        return {
            "$__rate_interval": "10s",
            "$__range": f"{self.ended - self.started:.0f}s",
            "$job": "pipeline",
            "$topic": self.app.topic,
        }


@pytest.fixture(scope="module")
def scraped(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Send, run, kill in mid transaction, run again, send more, catch up; Prometheus looks every second."""
    folder = tmp_path_factory.mktemp("scraped")
    port = free_ports(1)[0].client
    app = new_app(
        broker.bootstrap,
        folder,
        partitions=PARTITIONS,
        source={"max_offsets_per_trigger": BATCH},
        metrics={"port": port},
    )
    sent = send(app.bootstrap, app.topic, count=FIRST).sent
    started = time.time()
    with Prometheus(folder, [f"127.0.0.1:{port}"]) as prometheus:
        with app.start() as running:
            running.wait_for("two batches are scraped", lambda: prometheus.value(READ) > 2 * BATCH)
            seen = time.time()
            running.wait_for_open_transaction()
            signal_all(tree(running.pid), signal.SIGKILL)
            running.wait()
        with app.start() as running:
            running.wait_for("the restart is scraped", lambda: prometheus.value("max(topic:pipeline_run:max)") == 2)
            sent += send(app.bootstrap, app.topic, count=SECOND, seed=2).sent
            running.wait_for("all is read", lambda: prometheus.value(READ) == sent)
            running.wait_for("no lag is left", lambda: prometheus.now("sum(pipeline_lag_records)") == [0])
            # The annotation of a restart compares with the run of a minute ago.
            running.wait_for("a minute of history", lambda: time.time() > seen + 70)
            with build_opener(ProxyHandler({})).open(f"{endpoint_of(app.settings)}/metrics") as answer:
                metrics = answer.read().decode()
            yield Scraped(app, prometheus, started, time.time(), sent, metrics)
            running.send(signal.SIGTERM)
            assert running.wait() == 0


@pytest.mark.parametrize("panel", PANELS, ids=[f"{panel.board}: {panel.title}" for panel in PANELS])
def test_every_query_of_a_panel_finds_data(scraped: Scraped, panel: Panel) -> None:
    for expr in panel.queries:
        asked = substituted(expr, scraped.variables())
        assert scraped.prometheus.over(asked, scraped.started, scraped.ended), asked


def test_the_kill_is_annotated_as_a_restart(scraped: Scraped) -> None:
    board = json.loads((DASHBOARDS / "overview.json").read_text(encoding="utf-8"))
    [restarts] = board["annotations"]["list"]
    asked = substituted(restarts["target"]["expr"], scraped.variables())
    # The first run is none: nobody saw the job before it.
    assert [set(run) for run in scraped.prometheus.over(asked, scraped.started, scraped.ended)] == [{2.0}]


def test_the_variables_of_the_dashboards_offer_the_job_and_its_topic(scraped: Scraped) -> None:
    board = json.loads((DASHBOARDS / "overview.json").read_text(encoding="utf-8"))
    offered = {}
    for variable in board["templating"]["list"][1:]:
        match, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        found = scraped.prometheus.ask("series", **{"match[]": substituted(match, scraped.variables())})
        offered[variable["name"]] = {series[label] for series in found}
    assert offered == {"job": {"pipeline"}, "topic": {scraped.app.topic}}


@pytest.mark.parametrize("name", RECORDED)
def test_every_recording_rule_records(scraped: Scraped, name: str) -> None:
    assert scraped.prometheus.over(name, scraped.started, scraped.ended)


@pytest.mark.parametrize("name", ALERTS)
def test_every_series_that_an_alert_looks_at_exists(scraped: Scraped, name: str) -> None:
    selectors = SELECTOR.findall(ALERTS[name])
    assert selectors
    for selector in selectors:
        assert scraped.prometheus.over(selector, scraped.started, scraped.ended), selector


def test_prometheus_evaluates_every_rule_without_an_error(scraped: Scraped) -> None:
    found = [rule for group in scraped.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(found) == len(ALERTS) + len(RECORDED)
    assert {(rule["name"], rule["health"], rule.get("lastError")) for rule in found} == {
        (name, "ok", None) for name in (*ALERTS, *RECORDED)
    }


def test_dead_letters_raise_their_alert_and_nothing_else_fires_after_one_kill(scraped: Scraped) -> None:
    raised = [(alert["labels"]["alertname"], alert["state"]) for alert in scraped.prometheus.ask("alerts")["alerts"]]
    assert "PipelineDeadLetters" in dict(raised)
    assert {name for name, state in raised if state == "firing"} <= {"PipelineDeadLetters"}


def test_counters_seen_by_prometheus_are_exact_across_the_kill(scraped: Scraped) -> None:
    asked = scraped.prometheus
    reads = asked.over(READ, scraped.started, scraped.ended)
    assert [max(series) for series in reads] == [scraped.sent]
    assert all(series == sorted(series) for series in reads)
    for name in ("pipeline_dedup_hits_total", "pipeline_dead_letters_total", "pipeline_records_written_total"):
        assert asked.value(f"sum({name})") > 0
    receipts, alerts = scraped.app.settings.output.topics
    written = len(scraped.app.written(receipts)) + len(scraped.app.written(alerts))
    assert asked.value("sum(pipeline_records_written_total)") == written


def test_the_fates_of_source_records_add_up_to_all_that_was_read(scraped: Scraped) -> None:
    """What the panel of the same name stacks is everything, and nothing of it is counted twice."""
    one = scraped.prometheus.value
    judged = one("sum(pipeline_dedup_hits_total)")
    unusable = one('sum(pipeline_dead_letters_total{reason=~"identity|decode"})')
    dropped = one("sum(pipeline_records_dropped_total)")
    receipts = len(scraped.app.written(scraped.app.settings.output.topics[0]))
    # Each payment that is processed has exactly one receipt.
    assert judged + unusable + dropped + receipts == scraped.sent


def test_the_exposition_passes_the_linter_of_prometheus(scraped: Scraped) -> None:
    checked = promtool("check", "metrics", text=scraped.metrics)
    assert checked.returncode == 0, checked.stdout + checked.stderr
