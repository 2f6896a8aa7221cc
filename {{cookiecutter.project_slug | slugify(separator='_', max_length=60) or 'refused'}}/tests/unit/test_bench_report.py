"""Results of benchmarks: kept part by part, drawn in full, and put into a page between its marks only."""

from __future__ import annotations

import json
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec
from xml.etree import ElementTree as ET

import pytest
from bench import report, tuning
from bench.__main__ import BY_NAME, LONG, QUICK
from bench.figures import spread
from bench.growth import compared, cost
from bench.inside import Lap, Laps
from bench.latency import grown
from bench.overhead import ratios
from bench.plot import charts, draw, lines
from bench.stage import Stage
from bench.tables import Column, number, table, with_spread
from bench.tuning import GOALS, named

from pipeline.errors import PipelineError
from pipeline.settings import KEYS

SVG = "{http://www.w3.org/2000/svg}"
START = {"runs": [{"start": 9.5, "recovery": 12.25}], "start": spread([9.5]), "recovery": spread([12.25])}
LATENCY: dict[str, Any] = {
    "rate": 5_000,
    "records": 1_000,
    "batches": 10,
    "keeps_up": False,
    "curve": [float(share) for share in range(1, 101)],
    "p50": 50.0,
    "p95": 95.0,
    "p99": 99.0,
    "max": 120.0,
    "peak_mb": 900.0,
    "other_cores": 0.1,
    "bench_cores": 0.2,
    "cycle_ms": 300.0,
    "batch_ms": 250.0,
    "transaction_ms": 90.0,
    "phases_ms": {"fence": 10.0, "commit": 20.0},
    "memory": {"early_mb": 800.0, "late_mb": 810.0, "rise_mb_per_minute": 1.5},
    "cores": {"driver": 0.1, "jvm": 0.5, "workers": 0.2, "broker": 0.3},
}


def test_parts_run_at_different_times_stand_side_by_side_in_one_file(tmp_path: Path) -> None:
    report.keep(tmp_path, "start", START, "quick")
    report.keep(tmp_path, "latency", LATENCY, "long")
    results = report.read(tmp_path / report.RESULTS)
    assert (results["start"]["scale"], results["latency"]["scale"]) == ("quick", "long")
    assert results["machine"]["cores"] > 0
    assert json.loads((tmp_path / report.RESULTS).read_text(encoding="utf-8")) == results


def test_a_picture_shows_every_part_that_was_run(tmp_path: Path) -> None:
    results = report.keep(tmp_path, "start", START, "quick") | report.keep(tmp_path, "latency", LATENCY, "quick")
    drawn = ET.fromstring(draw(results))  # noqa: S314  our own
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{SVG}text")]
    assert any(text.startswith("Latency") for text in texts)
    assert {"9.5 s", "12.2 s", "p50 50, p99 99", "recovery after SIGKILL"} <= set(texts)
    assert (tmp_path / report.PICTURE).exists()
    assert "did not keep up" in report.shown("latency", LATENCY)
    assert "did not keep up" not in report.shown("latency", LATENCY | {"keeps_up": True})


def test_growth_is_drawn_for_each_number_of_lanes_in_the_largest_of_its_batches() -> None:
    lanes = [(1, 2_000, 500.0), (1, 450_000, 1_000.0), (64, 3_600_000, 900.0), (64, 2_000, 100.0)]
    points = [{"records": batch, "lanes": number, "ms": 5.0} for number, batch, _ in lanes]
    result = {
        "lanes": [{"lanes": number, "batch": batch, "rate": spread([rate])} for number, batch, rate in lanes],
        "producers": [],
        "records": [],
        "cost": {"points": points, "us_per_record": 1.0, "ms_per_lane": 2.0, "ms_per_batch": 3.0},
        "memory": {"points": [(0.0, 1.0)], "rise_mb_per_minute": 0.0},
    }
    growth, cost, _ = charts({"growth": result})
    assert list(growth.bars) == [("1 lane", 1_000.0, "1,000"), ("64 lanes", 900.0, "900")]
    assert "2,000,000" in "".join(lines(cost, 0.0))


def test_lanes_and_producers_are_compared_with_the_first_of_their_series_round_by_round() -> None:
    one = [Laps([Lap(1_000, 1, 1.0)]), Laps([Lap(500, 1, 1.0)])]
    many = [Laps([Lap(900, 64, 1.0)]), Laps([Lap(500, 64, 1.0), Lap(500, 64, 1.0)])]
    row = compared(many, one)
    assert (row["rate"]["low"], row["rate"]["high"]) == (500.0, 900.0)
    assert (row["to_first"]["low"], row["to_first"]["high"]) == (0.9, 1.0)
    assert row["batch_ms"] == 1_000.0


def test_only_what_stands_between_the_marks_of_a_part_is_rewritten(tmp_path: Path) -> None:
    after = "<!-- /bench -->\nbetween\n<!-- bench: growth -->\nkept\n<!-- /bench -->\n"
    results = report.keep(tmp_path, "start", START, "quick")
    new = report.refreshed(f"above\n<!-- bench: start -->\nold figures\n{after}", results)
    assert "old figures" not in new
    assert "9.5" in new
    assert new.startswith("above\n<!-- bench: start -->\n")
    assert new.endswith(after)
    assert report.refreshed(new, results) == new
    assert report.refreshed(f"above\n<!-- bench: start -->\n{after}", results) == new


def test_the_page_of_figures_has_a_place_for_every_part() -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for part in ("machine", *report.SHOWN):
        assert page.count(report.BEGIN.format(part=part)) == 1
    assert page.count(report.END) == len(report.SHOWN) + 1


@pytest.mark.parametrize("options", [QUICK, BY_NAME, LONG], ids=["quick", "by name", "long"])
def test_every_part_takes_the_options_that_it_is_run_with(options: dict[str, dict[str, Any]]) -> None:
    for part, given in options.items():
        signature(import_module(f"bench.{part}").measure).bind("stage", **given)
    assert set(LONG) == set(report.SHOWN) == set(QUICK) | set(BY_NAME)


def test_a_choice_is_named_as_it_stands_in_the_settings_file() -> None:
    choices = [named(choice) for goal in GOALS for choice in goal.choices]
    assert {"as shipped", "spark.master = local[8,4]", "source.max_offsets_per_trigger = 50000"} <= set(choices)
    known = {f"{section}.{key}" for section, keys in KEYS.items() for key in keys}
    assert {choice.partition(" = ")[0] for choice in choices} - known == {"as shipped"}


def test_each_choice_of_a_goal_runs_once_in_each_round_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def figures(_: Stage, environ: dict[str, str]) -> dict[str, float]:
        ran.append(named(environ))
        return {"p50, ms": float(len(ran))}

    choices: tuple[dict[str, str], ...] = ({}, {"PIPELINE_SPARK__MASTER": "local[8,4]"})
    goals = (tuning.Goal("speed", figures, choices), tuning.Goal("other", figures, choices))
    monkeypatch.setattr(tuning, "GOALS", goals)
    result = tuning.measure(create_autospec(Stage, instance=True), only="speed", rounds=3)
    assert list(result["goals"]) == ["speed"]
    assert [len(ran), ran.count("as shipped")] == [6, 3]
    assert result["goals"]["speed"][0]["p50, ms"]["runs"] == 3
    assert "spark.master = local[8,4]" in tuning.show(result)
    with pytest.raises(PipelineError, match="no such goal: speeed"):
        tuning.measure(create_autospec(Stage, instance=True), only="speeed")


def test_a_file_without_results_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="make bench"):
        report.read(tmp_path / "none.json")


def test_a_table_has_equal_columns_and_dashes_for_what_is_missing() -> None:
    columns = (Column("name", "name", str), Column("rate", "records/s", number(1)), Column("us", "us", with_spread(0)))
    lines = table(columns, [{"name": "a", "rate": 1234.56, "us": spread([1, 2, 9])}, {"name": "b"}]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "| a    | 1,234.6   | 2 (1 to 9) |" in lines
    assert "| b    | -         | -          |" in lines


def test_a_histogram_of_a_time_is_what_came_between_two_scrapes() -> None:
    assert grown({0.1: 5.0, 1.0: 8.0}, {0.1: 6.0, 1.0: 10.0, float("inf"): 10.0}) == {0.1: 1, 1.0: 2, float("inf"): 10}


def test_the_cost_of_a_batch_is_told_by_record_lane_and_batch() -> None:
    laps = [Lap(n, lanes, (n * 8e-6 + lanes * 4e-3 + 0.15)) for n in (1_000, 20_000) for lanes in (1, 8, 64)]
    found = cost(laps)
    assert found["us_per_record"] == pytest.approx(8.0)
    assert found["ms_per_lane"] == pytest.approx(4.0)
    assert found["ms_per_batch"] == pytest.approx(150.0)
    assert found["worst_off"] < 1e-6


def test_ratios_are_of_runs_of_the_same_round() -> None:
    done = {
        "first": [{"us": 1.0}, {"us": 10.0}],
        "second": [{"us": 2.0}, {"us": 20.0}],
        "third": [{"us": 6.0}, {"us": 30.0}],
    }
    rows = ratios(done)
    assert rows[1]["to_first"] == spread([2.0, 2.0])
    assert rows[2]["to_first"] == spread([6.0, 3.0])
    assert rows[2]["to_last"] == spread([3.0, 1.5])
