"""The dashboards: exactly what their code makes, valid by Grafana's own types, and linted as its linter does."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from ops.grafana.build import FOLDER, RUNBOOK, entries, rendered
from tests.support.prometheus import OPS, ROOT, promtool, substituted

from pipeline.observe.families import FAMILIES, LANE

SCHEMA = json.loads(Path(__file__).with_name("grafana.schema.json").read_text(encoding="utf-8"))
BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
ENTRIES = entries(RUNBOOK.read_text(encoding="utf-8"))
METRICS = {family.name: family for family in FAMILIES}
LANE_COUNTERS = [name for name, family in METRICS.items() if family.kind == "counter" and family.labels[:2] == LANE]
PANEL = "Panel<Record<string,unknown>,Record<string,unknown>>"
WIDTH = 24

ALL = [(name, panel) for name, board in BOARDS.items() for panel in board["panels"] if panel["type"] != "row"]
ASKING = [(name, panel) for name, panel in ALL if panel.get("targets")]
QUERIES = [(f"{name}: {panel['title']}", target["expr"]) for name, panel in ASKING for target in panel["targets"]]

every_board = pytest.mark.parametrize("name", BOARDS)
every_panel = pytest.mark.parametrize(
    ("name", "panel"), ASKING, ids=[f"{name}: {panel['title']}" for name, panel in ASKING]
)
every_query = pytest.mark.parametrize("expr", [expr for _, expr in QUERIES], ids=[where for where, _ in QUERIES])


def faults(definition: dict[str, Any], value: object) -> list[str]:
    """Return where a value is not what Grafana's types say."""
    validator = Draft7Validator({**definition, "definitions": SCHEMA["definitions"]})
    return [f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(value)]


def test_the_files_are_what_the_code_makes() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == rendered()


@every_board
def test_a_dashboard_is_valid_by_the_types_of_grafana(name: str) -> None:
    board = BOARDS[name]
    # Panels are checked one by one below: among alternatives a validator cannot say which fault is meant.
    found = faults(SCHEMA["properties"]["dashboard"], {**board, "panels": []})
    for panel in board["panels"]:
        kind = "RowPanel" if panel["type"] == "row" else PANEL
        found += faults(SCHEMA["definitions"][kind], panel)
        for part, value in (
            ("Options", panel.get("options", {})),
            ("Custom", panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})),
        ):
            found += faults(SCHEMA["properties"].get(panel["type"] + part, {}), value)
    assert found == []


def test_the_types_of_grafana_refuse_what_is_wrong() -> None:
    _, panel = ASKING[0]
    assert faults(SCHEMA["definitions"][PANEL], panel) == []
    assert faults(SCHEMA["definitions"][PANEL], {**panel, "title": 7})
    assert faults(SCHEMA["definitions"][PANEL], {**panel, "tittle": "Lag"})
    assert faults(SCHEMA["properties"]["timeseriesCustom"], {"fillOpacity": "much"})
    assert faults(SCHEMA["properties"]["statOptions"], {"colorMode": "loud"})


@every_board
def test_a_dashboard_has_its_own_name_a_description_and_links_to_the_others(name: str) -> None:
    board = BOARDS[name]
    assert board["schemaVersion"] == 42
    assert board["uid"] == f"pipeline-{name}"
    assert board["description"]
    assert board["tags"] == ["pipeline"]
    assert [(link["type"], link["tags"]) for link in board["links"]] == [("dashboards", ["pipeline"])]


@every_board
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= WIDTH for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize("name", [name for name in BOARDS if name != "runbook"])
def test_a_dashboard_can_be_turned_to_a_data_source_a_job_and_topics(name: str) -> None:
    variables = {variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "topic"]
    assert (variables["topic"]["multi"], variables["topic"]["includeAll"]) == (True, True)
    [restarts] = BOARDS[name]["annotations"]["list"]
    assert "pipeline_run" in restarts["target"]["expr"]


@every_panel
def test_a_panel_says_what_it_shows_in_which_unit_and_from_which_value_on_it_is_bad(
    name: str, panel: dict[str, Any]
) -> None:
    assert panel["title"], name
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"][0]["value"] is None
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@every_panel
def test_a_panel_leads_to_its_entry_in_the_runbook(name: str, panel: dict[str, Any]) -> None:
    [link] = panel["links"]
    pages = {page["id"]: page["title"] for page in BOARDS["runbook"]["panels"]}
    place = int(link["url"].removeprefix("/d/pipeline-runbook?viewPanel="))
    assert link["title"] == f"Runbook: {pages[place]}", name


def test_the_runbook_can_be_read_in_grafana() -> None:
    pages = {page["title"]: page["options"]["content"] for page in BOARDS["runbook"]["panels"]}
    assert pages == ENTRIES
    assert len(pages) > 10


@every_query
def test_a_query_asks_one_job_for_metrics_that_exist(expr: str) -> None:
    selectors = re.findall(r"\b(pipeline_\w+|up|ALERTS)(\{[^}]*\})?", expr)
    assert selectors
    for name, labels in selectors:
        assert 'job="$job"' in labels, name
        assert name in {"up", "ALERTS"} or re.sub(r"_(bucket|sum|count)$", "", name) in METRICS, name


@every_query
def test_a_query_takes_the_newest_figure_of_a_lane_and_never_adds_up_copies_of_the_job(expr: str) -> None:
    for name in LANE_COUNTERS:
        whole = re.escape(f"max by ({', '.join(METRICS[name].labels)}) (")
        # What is left after each proper use must not name the counter.
        proper = rf"{whole}(rate\(|max_over_time\()?{name}\{{[^}}]*\}}"
        lowest = rf"{whole.replace('max', 'min', 1)}min_over_time\({name}\{{[^}}]*\}}"
        assert name not in re.sub(f"{proper}|{lowest}", "", expr)


def test_queries_are_promql(tmp_path: Path) -> None:
    known = {"$__rate_interval": "1m", "$__range": "1h"}
    rules = [{"record": "panel", "expr": substituted(expr, known), "labels": {"at": where}} for where, expr in QUERIES]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "--lint=none", "panels.yml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(QUERIES)} rules found" in checked.stdout


def test_grafana_finds_the_dashboards_and_scrapes_as_often_as_prometheus() -> None:
    folder = ROOT / "ops/grafana/provisioning"
    [provider] = yaml.safe_load((folder / "dashboards/pipeline.yaml").read_text(encoding="utf-8"))["providers"]
    [source] = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text(encoding="utf-8"))["datasources"]
    config = yaml.safe_load((OPS / "prometheus.yml").read_text(encoding="utf-8"))
    assert provider["type"] == "file"
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
