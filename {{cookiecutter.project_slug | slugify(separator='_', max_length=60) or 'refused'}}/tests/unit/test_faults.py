"""Fault points as they are shipped: they do nothing, and cost next to nothing."""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING

import pytest

from pipeline import faults
from pipeline.faults import VARIABLE, fault_point

if TYPE_CHECKING:
    from collections.abc import Iterator

HIT: list[str] = []


def note(place: str) -> None:
    """Stand for what a test arms."""
    HIT.append(place)


@pytest.fixture(autouse=True)
def looked_anew() -> Iterator[None]:
    """Let each test decide by the environment anew; a process looks there only once."""
    HIT.clear()
    faults._armed.cache_clear()  # noqa: SLF001  the memory of one process
    yield
    faults._armed.cache_clear()  # noqa: SLF001


def test_an_unarmed_fault_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    fault_point("after begin")
    assert HIT == []


def test_only_the_environment_arms_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{__name__}:note")
    fault_point("after begin")
    assert HIT == ["after begin"]


def test_an_unarmed_fault_point_costs_a_chunk_nothing_that_could_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    seconds = min(timeit.repeat(lambda: fault_point("after begin"), number=10_000, repeat=5)) / 10_000
    # A chunk passes eight of them, and takes milliseconds.
    assert seconds * 8 < 0.0005
