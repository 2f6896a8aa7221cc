"""The local stack, as a user meets it: `make up`, healthy, scraped, stopped, audited, gone after `make down`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.kafka import wait_until
from tests.support.running import JOB_SECONDS, ROOT
from tests.support.stack import Stack

from pipeline.local.lookout import Lookout
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A health check of the image comes each 30 s, and Spark's start takes its time.
HEALTHY_SECONDS = 240.0
# Prometheus looks each 15 s.
SCRAPED_SECONDS = 60.0
# Images that only their vendors make; without them the rest of the stack is still worth a look, unless all is required.
OPTIONAL = set() if os.environ.get("CONTAINERS") == "required" else {"registry", "grafana", "ui"}
MONITORED = (ROOT / "ops/compose.yaml").exists()
pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture
def stack() -> Iterator[Stack]:
    """Return a stack that is not started yet, and removed at the latest here."""
    with Stack() as described:
        if not described.compose_answers():
            pytest.skip("docker compose is not installed")
        yield described


def test_compose_itself_takes_the_files_and_would_refuse_a_wrong_key(stack: Stack, tmp_path: Path) -> None:
    stack.compose("config", "--quiet")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("services: {kafka: {imagge: x}}\n", encoding="utf-8")

    with pytest.raises(AssertionError, match="imagge"):
        stack.compose("--file", str(wrong), "config", "--quiet")


def test_the_stack_is_healthy_and_scraped_its_audit_is_exact_and_nothing_is_left_of_it(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    services = stack.services.keys() - (missing := stack.missing())
    with capsys.disabled():
        print(f"\nstack: {', '.join(sorted(services))}; no image to be had: {', '.join(sorted(missing)) or 'none'}")  # noqa: T201
    assert missing <= OPTIONAL

    stack.up(services)
    stack.wait_until_well(services, HEALTHY_SECONDS)
    if MONITORED:
        wait_until(lambda: stack.value('up{job="pipeline"}') == 1, SCRAPED_SECONDS, "Prometheus reaches the pipeline")
        read = "sum(pipeline_records_read_total)"
        wait_until(lambda: stack.value(read) > 0, SCRAPED_SECONDS, "Prometheus has seen records")
        wait_until(lambda: stack.rules() == {"ok"}, SCRAPED_SECONDS, "Prometheus has tried all rules")
    if "grafana" in services:
        assert [source["type"] for source in stack.grafana("datasources")] == ["prometheus"]
        boards = len(list((ROOT / "ops/grafana/dashboards").glob("*.json")))
        found = "search?type=dash-db"
        wait_until(lambda: len(stack.grafana(found)) == boards > 0, SCRAPED_SECONDS, "Grafana has all dashboards")

    stack.make("doctor")
    stack.compose("stop", "events")
    wait_until_caught_up(stack)
    stack.compose("stop", "pipeline")
    assert stack.state("pipeline").exit_code == 0
    assert "0 lost, 0 duplicated" in stack.make("audit")

    stack.down()
    assert stack.left() == {"containers": [], "volumes": [], "networks": []}


def wait_until_caught_up(stack: Stack) -> None:
    """Wait until the lanes have passed all that was sent."""
    with Lookout(load(ROOT / "pipeline.toml", stack.environ)) as lookout:
        wait_until(lambda: lookout.progress() >= lookout.total > 0, JOB_SECONDS, "the pipeline has caught up")
