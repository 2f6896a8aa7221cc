"""What a soak calls growth: beyond noise, in any one figure, in the longest life of a job; of ids over all lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.soak.samples import GROWTH, Sample, growth, read

if TYPE_CHECKING:
    from pathlib import Path

FLAT = {"megabytes": 900.0, "files": 300.0, "threads": 120.0, "transactional ids": 2.0}


def life(pid: int, count: int, **slopes: float) -> list[Sample]:
    """Return samples of one life, in which some figures rise by so much a sample."""
    return [
        Sample(float(number), pid, {name: value + number * slopes.get(name, 0.0) for name, value in FLAT.items()})
        for number in range(count)
    ]


def test_a_job_that_stays_as_it_is_has_not_grown() -> None:
    assert growth(life(1, 30)) == {}


@pytest.mark.parametrize("name", GROWTH)
def test_any_figure_that_rises_for_long_has_grown(name: str) -> None:
    assert set(growth(life(1, 30, **{name: FLAT[name] / 30}))) == {name}


def test_one_transactional_id_more_is_growth() -> None:
    samples = [*life(1, 20), *[sample._replace(figures=FLAT | {"transactional ids": 3.0}) for sample in life(1, 10)]]
    assert growth(samples) == {"transactional ids": (2.0, 3.0)}


def test_transactional_ids_that_each_restart_adds_are_growth_though_each_life_is_flat() -> None:
    lives = [
        sample._replace(life=number, figures=FLAT | {"transactional ids": 2.0 * number})
        for number in range(1, 5)
        for sample in life(number, 8)
    ]
    assert growth(lives) == {"transactional ids": (2.0, 8.0)}


def test_a_restart_begins_anew_and_the_longest_life_is_judged() -> None:
    assert growth([*life(1, 5, megabytes=500), *life(2, 20), *life(3, 4)]) == {}


def test_what_is_too_short_to_tell_is_not_called_flat() -> None:
    assert growth(life(1, 5)) == {"too few samples of one life": 5}
    assert growth([]) == {"too few samples of one life": 0}


def test_samples_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(f"{sample.as_text()}\n" for sample in life(7, 3)), encoding="utf-8")
    assert read(path) == life(7, 3)
    assert read(tmp_path / "none") == []
