"""The rules of Prometheus: valid, documented, and each alert shown to fire and to be silent by tests that can fail."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.prometheus import OPS, ROOT, promtool, rules

from pipeline.observe.families import FAMILIES, LANE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
RECORDED = {rule["record"]: rule for rule in rules("recording.yml")}
TESTS = sorted((OPS / "tests").glob("*.yml"))
METRICS = {family.name: family for family in FAMILIES}
# A failed case, as promtool prints it: whose, and whether nothing was expected or nothing was found.
CASE = re.compile(r"alertname: (\w+), time: \S+, \n\s+exp:(\[\])?.*?got:(\[\])?", re.DOTALL)
NAME = re.compile(r"(?:\w+:)?pipeline_\w+(?::\w+)?")
PARTS = re.compile(r"\n\s+and | or ")


def used(expr: str) -> set[str]:
    """Return the names of all series in an expression."""
    return set(NAME.findall(expr))


def test_prometheus_accepts_configuration_and_rules() -> None:
    checked = promtool("check", "config", "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout
    assert f"{len(RECORDED)} rules found" in checked.stdout


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_are_silent_as_their_tests_say(path: Path) -> None:
    tested = promtool("test", "rules", path.name, cwd=path.parent)
    assert tested.returncode == 0, tested.stderr


@pytest.mark.parametrize("rule", [*ALERTS.values(), *RECORDED.values()], ids=[*ALERTS, *RECORDED])
def test_rules_ask_only_for_series_that_exist(rule: dict[str, Any]) -> None:
    for name in used(rule["expr"]):
        assert name in RECORDED or re.sub(r"_(bucket|sum|count)$", "", name) in METRICS, name


@pytest.mark.parametrize("name", [name for name in RECORDED if name.endswith(":max")])
def test_figures_of_lanes_are_the_highest_of_all_copies_and_keep_every_label(name: str) -> None:
    [metric] = used(RECORDED[name]["expr"])
    labels = ", ".join(("job", *METRICS[metric].labels))
    assert RECORDED[name]["expr"] == f"max by ({labels}) ({metric})"


@pytest.mark.parametrize("rule", [*ALERTS.values(), *RECORDED.values()], ids=[*ALERTS, *RECORDED])
def test_no_rule_adds_up_what_copies_of_the_job_say_of_a_lane(rule: dict[str, Any]) -> None:
    lane_metrics = {name for name, family in METRICS.items() if family.labels[:2] == LANE}
    if not rule.get("record", "").endswith(":max"):
        assert not used(rule["expr"]) & lane_metrics


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_happened_and_where_to_read_on(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["for"]
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"


def test_the_runbook_has_an_entry_for_each_alert_and_for_no_other() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {heading for heading in headings if " " not in heading} == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_entry_of_the_runbook_says_what_it_means_where_to_look_and_what_to_do(name: str) -> None:
    text = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
    entry = text.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\*\*(\w+)\*\*", entry, re.MULTILINE) == ["Means", "Look", "Do"]


def failed_cases(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "alerts.yml") -> list[Any]:
    """Run all tests on changed rules; return of each failed case the alert, and whether silence was expected, found."""
    shutil.copytree(OPS, folder, dirs_exist_ok=True)
    spoilt = yaml.safe_load((OPS / name).read_text(encoding="utf-8"))
    for group in spoilt["groups"]:
        for rule in group["rules"]:
            change(rule)
    (folder / name).write_text(yaml.safe_dump(spoilt), encoding="utf-8")
    output = promtool("test", "rules", *(path.name for path in TESTS), cwd=folder / "tests").stderr
    return [(alert, bool(silent), bool(found_none)) for alert, silent, found_none in CASE.findall(output)]


def test_each_alert_has_a_test_that_fails_if_it_never_fires(tmp_path: Path) -> None:
    failed = failed_cases(tmp_path, lambda rule: rule.update(expr="vector(1) > 2"))
    assert {alert for alert, silent, found_none in failed if not silent and found_none} == ALERTS.keys()


def test_each_alert_has_a_test_that_fails_if_it_always_fires(tmp_path: Path) -> None:
    failed = failed_cases(tmp_path, lambda rule: rule.update({"expr": "vector(1)", "for": "0s"}))
    assert {alert for alert, silent, _ in failed if silent} == ALERTS.keys()


@pytest.mark.parametrize("part", [0, -1], ids=["first", "last"])
def test_each_condition_of_an_alert_has_a_test_that_fails_without_the_others(tmp_path: Path, part: int) -> None:
    several = {name for name, alert in ALERTS.items() if len(PARTS.split(alert["expr"])) > 1}
    assert len(several) == 5
    failed = failed_cases(tmp_path, lambda rule: rule.update(expr=PARTS.split(rule["expr"])[part]))
    assert {alert for alert, *_ in failed} == several


def test_a_sum_over_copies_of_the_job_would_be_noticed(tmp_path: Path) -> None:
    def add_up(rule: dict[str, Any]) -> None:
        rule["expr"] = rule["expr"].replace("max by", "sum by")

    failed = failed_cases(tmp_path, add_up, "recording.yml")
    assert "PipelineDeadLetters" in {alert for alert, *_ in failed}
