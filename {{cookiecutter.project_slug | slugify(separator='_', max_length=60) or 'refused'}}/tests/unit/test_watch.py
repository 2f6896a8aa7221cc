"""Watch: what the job's endpoint says, with rates and quantiles worked out as Prometheus does."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from tests.support.figures import batch, lane, report, settings_of
from typer.testing import CliRunner

from pipeline import cli
from pipeline.errors import BadSettings, PipelineError
from pipeline.lanes.report import BUCKETS, Commit
from pipeline.observe.lag import Polled
from pipeline.observe.metrics import Metrics
from pipeline.observe.scrape import Scrape, quantile, scrape
from pipeline.observe.server import Endpoint
from pipeline.observe.watch import View, endpoint_of, look_once, refreshed, watch_live

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

LOCAL = "127.0.0.1"
AGES = [1] + [0] * len(BUCKETS)


class Job:
    """A job, as far as its endpoint shows it."""

    def __init__(self, trouble: str = "") -> None:
        registry = CollectorRegistry()
        self.metrics = Metrics.build(settings_of(), registry)
        self.endpoint = Endpoint(LOCAL, 0, registry, lambda: trouble)
        self.endpoint.start()
        self.url = f"http://{LOCAL}:{self.endpoint.port}"
        self.metrics.on_start(3, {0: lane(0, 10, read=10, verdicts={"duplicate": 2}), 1: lane(1, 7)})

    def commit(self, seconds: float, read: int) -> None:
        """Commit once in lane 0."""
        record = lane(0, read, read=read, written=read, dead_letters={"decode": 1}, verdicts={"duplicate": 4})
        done = Commit(seconds={"commit": seconds}, ages=AGES, age_seconds=0.001)
        self.metrics.on_batch(batch(report(record, done, outcomes={"committed": 1})))


@pytest.fixture
def job() -> Iterator[Job]:
    """Return a job that runs."""
    running = Job()
    yield running
    running.endpoint.close()


def shown(content: RenderableType) -> str:
    """Return what a wide terminal shows."""
    console = Console(width=160, force_terminal=False)
    with console.capture() as capture:
        console.print(content)
    return capture.get()


def test_quantiles_are_those_of_prometheus() -> None:
    buckets = {0.1: 10.0, 0.2: 30.0, 1.0: 40.0, math.inf: 40.0}
    assert quantile(0.5, buckets) == pytest.approx(0.15)
    assert quantile(0.25, buckets) == pytest.approx(0.1)
    assert quantile(0.99, buckets) == pytest.approx(0.2 + 0.8 * 9.6 / 10)


def test_a_quantile_beyond_the_last_bucket_is_its_bound() -> None:
    assert quantile(0.99, {1.0: 1.0, 60.0: 1.0, math.inf: 10.0}) == 60.0


def test_of_nothing_there_is_no_quantile() -> None:
    assert quantile(0.5, {1.0: 0.0, math.inf: 0.0}) is None
    assert quantile(0.5, {}) is None


def test_one_look_shows_what_the_job_says(job: Job) -> None:
    job.commit(0.004, 60)
    job.metrics.lag.polled = Polled(time.time(), {0: 100, 1: 7}, {}, {0: time.time() - 5.0})
    view = look_once(job.url)
    first, second = view.lanes
    assert (first.lane, first.next_offset, first.lag_records, first.dedup_hits, first.dead_letters) == (0, 60, 40, 4, 1)
    assert first.lag_seconds == pytest.approx(5.0, abs=3.0)
    assert (second.next_offset, second.lag_records, second.lag_seconds) == (7, 0, 0.0)
    assert (first.read_per_second, first.written_per_second) == (None, None)
    assert (view.app, view.topic, view.run, view.ready) == ("shop", "payments", 3, "ready")
    assert view.commit_seconds[0] == pytest.approx(0.00375)
    assert view.transactions["committed"] == 1


def test_rates_and_latencies_are_those_between_two_looks(job: Job) -> None:
    job.commit(20.0, 60)
    before = scrape(job.url)
    for read in (70, 80):
        job.commit(0.004, read)
    now = replace(scrape(job.url), at=before.at + 2.0)
    view = View.between(before, now)
    assert [entry.read_per_second for entry in view.lanes] == [10.0, 0.0]
    assert max(value or 99.0 for value in view.commit_seconds) < 0.006
    assert (View.between(now, now).commit_seconds[1] or 0.0) > 10.0


def test_a_restart_between_two_looks_gives_no_negative_figure(job: Job) -> None:
    for _ in range(3):
        job.commit(0.004, 60)
    before = scrape(job.url)
    anew = Job()
    anew.commit(0.004, 90)
    view = View.between(before, replace(scrape(anew.url), at=before.at + 1.0))
    anew.endpoint.close()
    assert view.lanes[0].read_per_second == 30.0
    assert view.commit_seconds[0] == pytest.approx(0.00375)


def test_the_screen_has_lanes_their_sum_and_the_state_of_the_job(job: Job) -> None:
    job.commit(0.004, 60)
    job.metrics.lag.polled = Polled(time.time(), {0: 1_060, 1: 8}, {}, {})
    text = shown(look_once(job.url).shown())
    assert "shop  payments  run 3  ready" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert rows[0] == ["0", "60", "1,000", "-", "-", "-", "4", "1"]
    assert rows[-1] == ["all", "67", "1,001", "-", "-", "-", "4", "1"]
    assert "commit p50 4 ms, p99 5 ms" in text
    assert "transactions: committed 1   skipped as replayed: 0" in text


def test_a_job_that_is_not_ready_shows_the_reason() -> None:
    job = Job("no progress for 99 s")
    text = shown(look_once(job.url).shown())
    job.endpoint.close()
    assert "run 3  no progress for 99 s" in text


def test_a_job_that_has_not_begun_has_an_empty_table() -> None:
    registry = CollectorRegistry()
    Metrics.build(settings_of(), registry)
    endpoint = Endpoint(LOCAL, 0, registry, lambda: "the lanes are not taken over yet")
    endpoint.start()
    text = shown(look_once(f"http://{LOCAL}:{endpoint.port}/").shown())
    endpoint.close()
    assert "the lanes are not taken over yet" in text
    assert "transactions: none yet" in text


def test_a_live_view_goes_on_when_the_job_goes_away_and_comes_back(job: Job) -> None:
    scrapes: deque[Scrape] = deque()
    assert "run 3" in shown(refreshed(scrapes, job.url))
    assert "no answer from http://127.0.0.1:1 " in shown(refreshed(scrapes, "http://127.0.0.1:1"))
    assert not scrapes
    assert "run 3" in shown(refreshed(scrapes, job.url))


def test_a_live_view_ends_with_ctrl_c(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    # In its place alone: `time.sleep` itself belongs to every thread of the tests.
    monkeypatch.setattr("pipeline.observe.watch.time", SimpleNamespace(sleep=sleep))
    console = Console(width=160, force_terminal=False)
    with console.capture() as capture:
        watch_live(job.url, 0.5, console)
    assert looks == [0.5] * 3
    assert "run 3" in capture.get()


def test_no_proxy_stands_between(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert look_once(job.url).run == 3


def test_an_endpoint_that_is_not_the_jobs_is_told() -> None:
    with socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(PipelineError, match=rf"no answer from http://127.0.0.1:{port} .*does the job run"):
        look_once(f"http://{LOCAL}:{port}")
    with pytest.raises(PipelineError, match="must begin with http://"):
        look_once("file:///etc/passwd")


def test_a_job_killed_while_it_answers_is_told_like_one_that_is_away() -> None:
    def answer_half() -> None:
        client, _ = server.accept()
        with client:
            client.recv(1_000)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npipeline_run")

    with socket.create_server((LOCAL, 0)) as server:
        answering = threading.Thread(target=answer_half)
        answering.start()
        with pytest.raises(PipelineError, match=r"no answer from .*does the job run"):
            scrape(f"http://{LOCAL}:{server.getsockname()[1]}")
        answering.join()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9108"),
        ("0.0.0.0", "http://127.0.0.1:9108"),  # noqa: S104  compared, not bound
        ("::1", "http://[::1]:9108"),
        ("::", "http://[::1]:9108"),
        ("driver.example", "http://driver.example:9108"),
    ],
)
def test_the_job_is_looked_for_where_its_settings_say(address: str, url: str) -> None:
    assert endpoint_of(settings_of(metrics={"address": address, "port": 9108})) == url


def test_a_job_without_an_endpoint_cannot_be_watched() -> None:
    with pytest.raises(BadSettings, match=r"metrics\.port = 0: the job has no endpoint"):
        endpoint_of(settings_of())


def test_the_command_shows_one_look_or_its_json(job: Job, tmp_path: Path) -> None:
    job.commit(0.004, 60)
    unused = str(tmp_path / "no-settings-are-needed.toml")
    run = CliRunner().invoke(cli.app, ["watch", "-s", unused, "--url", job.url, "--once"], env={"COLUMNS": "160"})
    assert run.exit_code == 0
    assert "shop  payments  run 3  ready" in run.output
    run = CliRunner().invoke(cli.app, ["watch", "-s", unused, "--url", job.url, "--json"])
    view = json.loads(run.output)
    assert (view["run"], view["lanes"][0]["next_offset"], view["transactions"]["committed"]) == (3, 60, 1)
