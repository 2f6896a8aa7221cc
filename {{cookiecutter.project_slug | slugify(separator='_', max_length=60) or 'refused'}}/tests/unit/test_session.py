"""The session: which collector Java gets, and how a checkpoint is written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.support.figures import settings_of

from pipeline.flow.checkpoint import QUICK, written_by
from pipeline.flow.session import SIMPLE_COLLECTOR, collector, outside_heap


@pytest.mark.parametrize("memory", ["512m", "1g", "2G", "2048M", "900000k"])
def test_a_small_heap_gets_the_simplest_collector(memory: str) -> None:
    assert collector(memory) == SIMPLE_COLLECTOR


@pytest.mark.parametrize("memory", ["2049m", "3g", "1t"])
def test_of_a_large_heap_java_decides(memory: str) -> None:
    assert not collector(memory)


@pytest.mark.parametrize(("master", "megabytes"), [("local[1,4]", 2048), ("local[2,4]", 2048), ("local[16,4]", 16384)])
def test_every_task_may_hold_rows_outside_the_heap(master: str, megabytes: int) -> None:
    assert outside_heap(master) == f"-XX:MaxDirectMemorySize={megabytes}m"


def test_as_many_tasks_as_cores_may_hold_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.flow.session.os", SimpleNamespace(cpu_count=lambda: 6))
    assert outside_heap("local[*,4]") == "-XX:MaxDirectMemorySize=6144m"


@pytest.mark.parametrize("place", ["", "checkpoint", "/var/lib/pipeline", "file:///var/lib/pipeline"])
def test_a_hint_on_a_local_disk_is_written_the_quick_way(place: str) -> None:
    assert written_by(settings_of(spark={"checkpoint": place})) == QUICK


@pytest.mark.parametrize("place", ["hdfs://cluster/pipeline", "s3a://bucket/pipeline"])
def test_another_file_system_is_left_as_it_is(place: str) -> None:
    assert written_by(settings_of(spark={"checkpoint": place})) == {}


def test_state_is_written_as_spark_comes() -> None:
    settings = settings_of(dedup={"strategy": "window"}, spark={"checkpoint": "/var/lib/pipeline"})
    assert settings.shuffled
    assert written_by(settings) == {}
