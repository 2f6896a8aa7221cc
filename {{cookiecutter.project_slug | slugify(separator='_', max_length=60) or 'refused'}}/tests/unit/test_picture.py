"""A recorded run and its picture: silence is recorded, nothing is invented, labels do not overlap."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from tests.support.kafka import wait_until

from pipeline.errors import PipelineError
from pipeline.local import picture
from pipeline.local.recorder import Recorder, figures
from pipeline.local.run_record import RunRecord
from pipeline.observe.scrape import Scrape

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
LABELS = (("topic", "payments"),)


def scraped(at: float, run: int, read: int, commits: int = 0) -> dict[str, Any]:
    """Return a line of a recorder: all commits took at most 100 ms."""
    counts = {"0.05": commits // 2, "0.1": commits, "inf": commits}
    figures = {"read": read, "written": read, "hits": read // 10, "dead": read // 100, "skipped": 0}
    return {"at": 1_000 + at, **figures, "lag": 5_000 - read, "run": run, "commits": counts}


def killed_once(folder: Path) -> RunRecord:
    """Return a run of 10 s, a kill, 10 s of silence, and 20 s more: 100 records in a second."""
    lines: list[dict[str, Any]] = [{"at": 1_000 + at, "down": True} for at in range(5)]
    lines += [scraped(at, 1, 100 * (at - 5), 2 * (at - 5)) for at in range(5, 16)]
    lines += [{"at": 1_015.5, "mark": "kill", "text": ""}, {"at": 1_015.6, "mark": "checkpoint deleted", "text": ""}]
    lines += [{"at": 1_000 + at, "starting": True} for at in range(16, 26)]
    lines += [scraped(at, 2, 1_200 + 100 * (at - 26), 2 * (at - 26)) for at in range(26, 47)]
    lines.append({"at": 1_060.0, "mark": "audit", "text": "audit: 3200 expected, 3200 found, 0 lost, 0 duplicated"})
    path = folder / "run.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return RunRecord.read(path)


def test_a_rate_is_of_one_process_and_what_was_committed_unseen_is_no_burst(tmp_path: Path) -> None:
    rates = killed_once(tmp_path).rate("read")
    assert len(rates) == 2
    assert {round(value) for part in rates for _, value in part} == {0, 100}


def test_silence_is_from_the_last_answer_to_the_next(tmp_path: Path) -> None:
    assert killed_once(tmp_path).silences() == [(0, 5), (15, 26)]


def test_commit_latency_is_told_only_where_something_was_committed(tmp_path: Path) -> None:
    [first, second] = killed_once(tmp_path).commit_quantile(0.99)
    assert first[0][0] == 6
    assert second[0][0] == 27
    assert all(0.09 < value <= 0.1 for _, value in first + second)


def test_a_file_without_a_scrape_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text('{"at": 1, "down": true}\n', encoding="utf-8")
    with pytest.raises(PipelineError, match="no scrape in it"):
        RunRecord.read(path)
    assert picture.main([str(path), str(tmp_path / "out.svg")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_picture_marks_the_kill_in_every_panel_and_says_what_the_audit_found(tmp_path: Path) -> None:
    drawn = ET.fromstring(picture.draw(killed_once(tmp_path)))  # noqa: S314  our own
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{SVG}text")]
    assert "One run of the demo, killed once in mid-transaction" in texts
    assert "SIGKILL, checkpoint deleted" in texts
    assert any("3,200 expected, 3,200 found, 0 lost, 0 duplicated" in text for text in texts)
    assert {"3,200 read", "1,800 left", "320 dedup hits", "32 dead letters", "p50", "p99"} <= set(texts)
    places = {path.attrib["d"].split()[0] for path in drawn.iter(f"{SVG}path") if path.get("class") == "kill"}
    lines = [path for path in drawn.iter(f"{SVG}path") if path.get("class") == "kill"]
    assert (len(places), len(lines)) == (1, 1 + 4)


def test_every_axis_begins_at_zero_and_no_curve_leaves_its_panel(tmp_path: Path) -> None:
    record = killed_once(tmp_path)
    for panel in picture.panels(record):
        values = [value for curve in panel.curves for part in curve.points for _, value in part]
        assert min(values) >= 0
        assert max(values) <= panel.top
        bottom = 500
        for curve in panel.curves:
            drawn = " ".join(picture.trace(record, curve, panel.top, bottom))
            ys = [float(y) for _, y in re.findall(r"[ML ]([\d.]+) ([\d.]+)", drawn)]
            assert bottom - picture.PLOT - 0.1 <= min(ys)
            assert max(ys) <= bottom + 0.1


def test_labels_at_the_ends_of_curves_that_meet_are_pushed_apart() -> None:
    curves = [picture.Curve("one", name, [[(0.0, 5.0), (1.0, 5.0)]]) for name in "abc"]
    drawn = "".join(picture.ends(picture.Panel("", "", str, curves), 100))
    ys = [float(y) for y in re.findall(r'<text class="" x="[\d.]+" y="([\d.]+)"', drawn)]
    assert len(ys) == 3
    assert all(later - earlier >= picture.LINE for earlier, later in pairwise(ys))


@pytest.mark.parametrize(("value", "top"), [(1, 1), (1.1, 2), (7, 8), (9, 10), (64_022, 80_000), (0.24, 0.3)])
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert picture.nice(value) == pytest.approx(top)


def test_a_job_that_does_not_answer_is_recorded_as_down(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        assert recorder.port > 0
        recorder.mark("kill", "why")
        wait_until(lambda: '"down": true' in path.read_text(encoding="utf-8"), what="a second is recorded")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["mark"], line["text"]) for line in lines if "mark" in line] == [("kill", "why")]


def test_without_a_file_nothing_is_recorded() -> None:
    with Recorder(None) as recorder:
        recorder.mark("kill")
    assert recorder.port == 0


def test_a_job_that_has_no_lanes_yet_is_recorded_as_starting() -> None:
    assert figures(Scrape(1.0, {"pipeline_info": {(): 1.0}}, "")) == {"starting": True}


def test_a_scrape_is_recorded_by_its_totals_and_the_buckets_of_its_commits() -> None:
    lane = (*LABELS, ("partition", "0"))
    buckets: dict[tuple[tuple[str, str], ...], float] = {
        (("le", bound), ("phase", phase), *LABELS): count
        for bound, phase, count in (("0.1", "commit", 3.0), ("+Inf", "commit", 4.0), ("0.1", "fence", 9.0))
    }
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {
        "pipeline_records_read_total": {lane: 7.0, (*LABELS, ("partition", "1")): 5.0},
        "pipeline_run": {LABELS: 2.0},
        "pipeline_transaction_phase_seconds_bucket": buckets,
    }
    found = figures(Scrape(1.0, samples, "ready"))
    assert (found["read"], found["run"], found["commits"]) == (12.0, 2.0, {"0.1": 3.0, "inf": 4.0})
    assert "lag" not in found
