"""The health check of a container: what the endpoint says of readiness becomes an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from tests.support.figures import settings_of
from tests.support.program import settings_file

from pipeline.observe import health
from pipeline.observe.server import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "127.0.0.1"


@pytest.mark.parametrize("trouble", ["", "it lags"], ids=["ready", "not ready"])
def test_the_exit_code_tells_whether_the_job_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trouble: str
) -> None:
    endpoint = Endpoint(LOCAL, 0, CollectorRegistry(), lambda: trouble)
    endpoint.start()
    settings = settings_of(metrics={"address": "0.0.0.0", "port": endpoint.port})  # noqa: S104  as in a container
    monkeypatch.setenv("PIPELINE_SETTINGS", str(settings_file(tmp_path, settings)))
    try:
        code = health.main()
    finally:
        endpoint.close()
    assert (code, capsys.readouterr().out) == ((1, "it lags\n") if trouble else (0, "ready\n"))


def test_a_job_that_does_not_answer_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIPELINE_SETTINGS", str(settings_file(tmp_path, settings_of(metrics={"port": 1}))))
    assert health.main() == 1
    assert capsys.readouterr().out.startswith("no answer from http://127.0.0.1:1 (")
