"""The endpoint: metrics in the format that was asked for, health, readiness with its reason, and clear errors."""

from __future__ import annotations

import http.client
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from tests.support.figures import TOPIC, batch, lane, report, settings_of

from pipeline import cli
from pipeline.errors import BadSettings
from pipeline.lanes.report import Commit
from pipeline.observe import lag
from pipeline.observe.lag import Polled, Poller
from pipeline.observe.metrics import Metrics
from pipeline.observe.server import Endpoint, trouble
from pipeline.observe.setup import observing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCAL = "127.0.0.1"
SECONDS = 10.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass
class Site:
    """A served registry."""

    metrics: Metrics
    endpoint: Endpoint
    reason: list[str] = field(default_factory=list)

    def get(self, path: str, accept: str = "", method: str = "GET") -> tuple[int, str, str]:
        """Return status, content type and body."""
        connection = http.client.HTTPConnection(LOCAL, self.endpoint.port, timeout=SECONDS)
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture
def site() -> Iterator[Site]:
    """Serve fresh metrics on a free port."""
    registry = CollectorRegistry()
    metrics = Metrics.build(settings_of(), registry)
    reason: list[str] = []
    endpoint = Endpoint(LOCAL, 0, registry, lambda: "".join(reason))
    endpoint.start()
    yield Site(metrics, endpoint, reason)
    endpoint.close()


def test_metrics_are_served_in_prometheus_own_format(site: Site) -> None:
    site.metrics.on_start(3, {0: lane(0, 5, read=4)})
    status, kind, body = site.get("/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {sample.name: sample.value for family in prometheus(body) for sample in family.samples}
    assert samples["pipeline_records_read_total"] == 4
    assert "# EOF" not in body


def test_openmetrics_is_served_to_who_asks_for_it(site: Site) -> None:
    site.metrics.on_start(3, {0: lane(0, 5, read=4)})
    site.metrics.on_batch(batch(report(lane(0, 6, read=5), Commit(ages=[1] + [0] * 16))))
    status, kind, body = site.get("/metrics", OPENMETRICS)
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    families = {family.name: family for family in openmetrics(body)}  # type: ignore[no-untyped-call]
    assert families["pipeline_records_read"].samples[0].value == 5
    assert families["pipeline_end_to_end_latency_seconds"].unit == "seconds"
    assert body.endswith("# EOF\n")


def test_a_query_behind_the_path_is_no_other_page(site: Site) -> None:
    assert site.get("/metrics?x=1")[0] == 200


def test_health_is_good_while_the_process_lives(site: Site) -> None:
    site.reason.append("not ready at all")
    assert site.get("/healthz") == (200, "text/plain; charset=utf-8", "alive\n")


def test_readiness_is_503_with_its_reason_or_200(site: Site) -> None:
    assert site.get("/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
    site.reason.append("the reason")
    assert site.get("/readyz") == (503, "text/plain; charset=utf-8", "the reason\n")


def test_any_other_page_is_not_found_and_names_those_that_are(site: Site) -> None:
    for path in ("/", "/metricsx", "/metrics/../etc/passwd"):
        status, _, body = site.get(path)
        assert (status, body) == (404, "see /metrics, /healthz and /readyz\n")


def test_a_question_for_the_head_alone_gets_no_body(site: Site) -> None:
    assert site.get("/metrics", method="HEAD")[::2] == (200, "")


def test_nothing_can_be_changed_through_the_endpoint(site: Site) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert site.get("/metrics", method=method)[0] == 501


def test_a_client_that_says_nothing_holds_up_nobody(site: Site) -> None:
    with socket.create_connection((LOCAL, site.endpoint.port)):
        assert site.get("/healthz")[0] == 200


def test_a_defect_in_a_scrape_ends_neither_the_endpoint_nor_the_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(site.metrics.lanes, "_figures", None)
        with pytest.raises(http.client.RemoteDisconnected):
            site.get("/metrics")
    assert site.get("/metrics")[0] == 200
    assert "endpoint=failing AttributeError" in caplog.text


def test_a_scrape_asks_no_cluster(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(name: str) -> Any:
        def made(*_: object) -> None:
            calls.append(name)
            msg = f"{name} was made"
            raise ConnectionError(msg)

        return made

    for name in ("Consumer", "Topics"):
        monkeypatch.setattr(lag, name, noted(name))
    settings = settings_of()
    poller = Poller(settings, site.metrics)
    site.endpoint.trouble = lambda: trouble(settings, site.metrics, poller)
    site.metrics.on_start(1, {0: lane(0, 5, read=5)})
    site.metrics.lag.polled = Polled(time.time(), {0: 9}, {}, {0: time.time()})
    for _ in range(20):
        assert 'pipeline_lag_records{partition="0",topic="payments"} 4.0' in site.get("/metrics")[2]
        assert site.get("/readyz")[0] == 200
    assert calls == []
    with pytest.raises(ConnectionError):  # the spy does see a poll
        poller.work()
    assert calls == ["Topics"]


def test_a_port_that_is_taken_is_told_with_its_setting_and_a_remedy() -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadSettings) as caught:
            Endpoint(LOCAL, port, CollectorRegistry(), str)
    told = str(caught.value)
    assert told.startswith(f"metrics.port = {port}: cannot listen on 127.0.0.1: Address already in use; ")
    assert f"PIPELINE_METRICS__PORT={port + 1}" in told


@pytest.mark.parametrize("address", ["192.0.2.1", "no such host", "256.1.1.1"])
def test_an_address_that_is_not_ours_is_told_with_its_setting(address: str) -> None:
    with pytest.raises(BadSettings, match=rf"metrics\.address = '{address}': .*give an address of this machine"):
        Endpoint(address, 0, CollectorRegistry(), str)


def test_the_port_can_be_taken_again_at_once(site: Site) -> None:
    port = site.endpoint.port
    site.get("/healthz")
    site.endpoint.close()
    again = Endpoint(LOCAL, port, CollectorRegistry(), str)
    again.server_close()
    site.endpoint = Endpoint(LOCAL, 0, CollectorRegistry(), str)
    site.endpoint.start()


def test_a_run_with_a_taken_port_ends_before_anything_else_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.flow.preflight.check_topics", lambda _: pytest.fail("a cluster was asked"))
    monkeypatch.setattr("pipeline.flow.job.session", lambda _: pytest.fail("Spark was started"))
    path = tmp_path / "pipeline.toml"
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        path.write_text(
            f"""
            app.id = "shop"
            source.bootstrap = "127.0.0.1:1"
            source.topic = "payments"
            output.topics = ["receipts"]
            output.dead_letter_topic = "dead"
            metrics.port = {port}
            """,
            encoding="utf-8",
        )
        monkeypatch.setattr(sys, "argv", ["pipeline", "run", "-s", str(path)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"error: metrics.port = {port}: ")
    assert said.count("\n") == 1


def test_port_0_runs_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.observe.setup.Endpoint", lambda *_: pytest.fail("an endpoint was made"))
    with observing(settings_of(metrics={"port": 0})) as observer:
        observer.say("hello")


def test_the_endpoint_answers_before_the_lanes_are_taken_over_and_is_gone_afterwards() -> None:
    with socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]
    with observing(settings_of(metrics={"port": port})):
        connection = http.client.HTTPConnection(LOCAL, port, timeout=SECONDS)
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (503, b"the lanes are not taken over yet\n")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOCAL, port), timeout=SECONDS)


class Ready:
    """A job that is ready, until a test takes something away."""

    def __init__(self) -> None:
        self.settings = settings_of(metrics={"ready_seconds": 100.0})
        self.metrics = Metrics.build(self.settings, CollectorRegistry())
        self.poller = Poller(self.settings, self.metrics)
        self.metrics.on_start(1, {0: lane(0, 10), 1: lane(1, 10)})
        self.poll({0: 10, 1: 10})

    def poll(self, stable: dict[int, int], age: float = 0.0) -> None:
        self.metrics.lag.polled = Polled(time.time() - age, stable, {}, {})

    def trouble(self) -> str:
        return trouble(self.settings, self.metrics, self.poller)


def test_a_job_that_is_caught_up_is_ready_however_long_nothing_came() -> None:
    job = Ready()
    job.metrics.lanes.progressed_at -= 10_000
    assert job.trouble() == ""


def test_a_job_that_is_behind_is_ready_while_it_commits() -> None:
    job = Ready()
    job.poll({0: 10, 1: 500})
    job.metrics.lanes.progressed_at -= 50
    assert job.trouble() == ""


def test_a_job_that_is_behind_and_does_not_commit_is_not_ready() -> None:
    job = Ready()
    job.poll({0: 10, 1: 500})
    job.metrics.lanes.progressed_at -= 150
    told = job.trouble()
    assert told.startswith(
        "no progress for 150 s (metrics.ready_seconds = 100), but behind by 490 offsets (lane 1: 490"
    )


def test_a_job_whose_cluster_does_not_answer_is_not_ready() -> None:
    job = Ready()
    job.poller.failure = "Unreachable: list offsets: no answer"
    assert job.trouble() == "the last poll of the clusters failed: Unreachable: list offsets: no answer"


def test_a_job_that_has_not_polled_or_not_lately_is_not_ready() -> None:
    job = Ready()
    job.poll({0: 10, 1: 10}, age=1_000.0)
    assert job.trouble() == "the clusters were not polled lately"
    job.metrics.lag.polled = None
    assert job.trouble() == "the clusters have not been polled yet"


def test_the_topic_of_a_lane_is_the_source_topic(site: Site) -> None:
    site.metrics.on_start(1, {3: lane(3, 7)})
    assert f'pipeline_lane_next_offset{{partition="3",topic="{TOPIC}"}} 7.0' in site.get("/metrics")[2]
