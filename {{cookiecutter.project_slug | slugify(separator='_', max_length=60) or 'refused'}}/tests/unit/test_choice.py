"""Delivery and atomicity as settings: what contradicts itself is refused, and what is weaker is said everywhere."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.support.reference import World, settings_for

from pipeline.errors import BadSettings, Denied, PipelineError, SafeStop
from pipeline.flow.stretch import Stretch, name_of, targets
from pipeline.flow.table import Table
from pipeline.kafka import Fatal, producer_config
from pipeline.lanes.plans import Plan
from pipeline.lanes.topics import Topic
from pipeline.lanes.weaker import Outlet
from pipeline.local.compare import as_meant, table_of
from pipeline.observe.audit.judge import judge
from pipeline.observe.doctor import machine
from pipeline.observe.doctor.reference import reference_topic
from pipeline.observe.doctor.site import Site
from pipeline.observe.progress import Observer
from pipeline.sections import Delivery
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from pipeline.observe.audit import AuditResult


def settings_with(**delivery: Any) -> Settings:
    """Return settings of that delivery."""
    return build({**settings_for().model_dump(), "delivery": delivery})


def audited(world: World, semantics: str) -> AuditResult:
    """Judge a world by another delivery than it was made for."""
    return judge(settings_with(semantics=semantics), world, world.expected())


@pytest.mark.parametrize(
    ("delivery", "line"),
    [
        (
            {"semantics": "exactly_once"},
            "delivery.semantics = 'exactly_once': must be 'exactly-once', 'at-least-once' or 'at-most-once'",
        ),
        ({"atomicity": "topic"}, "delivery.atomicity = 'topic': must be 'lane' or 'batch'"),
        (
            {"semantics": "at-least-once", "atomicity": "batch"},
            "delivery.atomicity = 'batch': needs delivery.semantics = 'exactly-once', not 'at-least-once'",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused_with_its_rule(delivery: dict[str, str], line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        settings_with(**delivery)
    assert str(refused.value) == f"settings: {line}"


@pytest.mark.parametrize(
    ("code", "failure", "line"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Denied, "Write on Topic receipts is not allowed"),
        (KafkaError.NOT_ENOUGH_REPLICAS, Fatal, r"not delivered: receipts \[2\]: NOT_ENOUGH_REPLICAS"),
    ],
)
def test_what_a_cluster_denies_a_weaker_delivery_is_not_tried_again(
    code: int, failure: type[PipelineError], line: str
) -> None:
    settings = settings_for("localhost:1")
    outlet = Outlet(producer_config(settings, settings.transactional_id(0)))
    answer: Any = SimpleNamespace(topic=lambda: "receipts", partition=lambda: 2)
    outlet._note(KafkaError(code), answer)  # noqa: SLF001  as its producer calls it
    with pytest.raises(failure, match=line):
        outlet.send()


def test_replays_into_other_topics_are_other_apps() -> None:
    live = settings_for()
    into = [["a-b"], ["a.b"], ["A-b"], ["receipts=a", "alerts=b"], ["receipts=b", "alerts=a"], ["x" * 99], ["x" * 98]]
    names = [name_of(live, targets(live, one)) for one in into]
    assert len(set(names)) == len(into)
    assert names == [name_of(live, targets(live, one)) for one in into]
    assert names[0].startswith("app-into-a-b-")
    for name in names:
        build({**live.model_dump(), "app": {"id": name}})


def test_a_replay_goes_on_where_it_began_also_when_retention_has_taken_its_first_records() -> None:
    live = settings_for()
    stretch = Stretch(live, live, {}, {0: 10, 1: 20}, {0: 99, 1: 99}, {0: 10, 1: 15})
    stretch.check_start({0: 10, 1: 20})
    stretch.check_start({0: 3, 1: 20})
    for began in ({0: 11, 1: 20}, {0: 10, 1: 19}, {0: 10, 1: 21}):
        with pytest.raises(SafeStop, match="give the same --from to go on"):
            stretch.check_start(began)


def test_a_reference_topic_may_grow_and_one_that_is_created_anew_stops_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [Topic("accounts", (1, 2), 1, 1)]
    asked: list[int] = []

    def offsets(_: str, partitions: range, __: object) -> dict[int, int]:
        asked.append(len(partitions))
        return dict.fromkeys(partitions, 0)

    topics = SimpleNamespace(one=lambda *_: there[-1], offsets=offsets)
    monkeypatch.setattr("pipeline.flow.table.Topics", lambda _: topics)
    given = {"topic": "accounts", "schema_file": "x"}
    table = Table(build({**settings_for().model_dump(), "reference": given}))
    table.refresh()
    there.append(Topic("accounts", (1, 2), 3, 1))
    table.refresh()
    assert asked == [1, 3]
    assert table.position == {0: 0, 1: 0, 2: 0}
    there.append(Topic("accounts", (1, 3), 3, 1))
    with pytest.raises(SafeStop, match="was deleted and created anew"):
        table.refresh()


def test_whole_batches_have_an_id_that_no_lane_has() -> None:
    settings = settings_for()
    assert settings.batch_id not in {settings.transactional_id(lane) for lane in range(10_000)}


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        ({"topic": "a b", "schema_file": "x"}, "reference.topic = 'a b': must be empty, or at most 249 letters"),
        ({"topic": "accounts"}, "reference.schema_file = '': needed with reference.topic"),
        ({"topic": "payments", "schema_file": "x"}, "reference.topic = 'payments' is the same topic as source.topic"),
        ({"max_keys": 0}, "reference.max_keys = 0: must be at least 1"),
    ],
)
def test_a_reference_that_cannot_be_is_refused_with_its_rule(reference: dict[str, Any], line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        build({**settings_for().model_dump(), "reference": reference})
    assert str(refused.value).startswith(f"settings: {line}")


@pytest.mark.parametrize(
    ("config", "state", "word"),
    [
        ({"cleanup.policy": "delete", "min.compaction.lag.ms": "0"}, "warn", "will be forgotten"),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}, "warn", "may not be finished"),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}, "ok", "not compacted before 86400 s"),
        (None, "fail", "does not exist"),
    ],
)
def test_doctor_looks_whether_the_reference_topic_keeps_what_a_restart_needs(
    config: dict[str, str] | None, state: str, word: str
) -> None:
    class Answers:
        def describe(self, names: list[str]) -> dict[str, Topic]:
            return {name: Topic(name, (1, 2), 3, 1) for name in names if config is not None}

        def config(self, _: str) -> dict[str, str] | None:
            return config

    values = settings_for().model_dump() | {"reference": {"topic": "accounts", "schema_file": "x"}}
    site = Site(build(values))
    vars(site)["source"] = SimpleNamespace(topics=Answers())
    (finding,) = reference_topic(site)
    assert (finding.state, word in finding.detail) == (state, True)
    assert list(reference_topic(Site(settings_for()))) == []


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":2,"first":{},"until":{},"reference":{}}']
)
def test_a_plan_that_is_not_understood_stops_the_job(text: bytes) -> None:
    with pytest.raises(SafeStop):
        Plan.decode(text, "plans [0]")


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = Plan(3, {0: 1, 1: 2}, {0: 5, 1: 2}, {0: 9}, "digest")
    assert Plan.decode(plan.encode(), "plans [0]") == plan
    assert plan.unfinished({0: 1, 1: 2}) == {0: (1, 5)}
    assert not plan.is_begun({0: 1, 1: 2})
    assert plan.is_begun({0: 2, 1: 2})


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1),
    st.integers(1, 60),
)
def test_the_batches_of_a_replay_cover_its_stretch_once_and_no_more(
    lanes: dict[int, tuple[int, int]], most: int
) -> None:
    values = settings_for().model_dump()
    values["source"]["max_offsets_per_trigger"] = most
    settings = build(values)
    first = {lane: start for lane, (start, _) in lanes.items()}
    until = {lane: start + count for lane, (start, count) in lanes.items()}
    stretch = Stretch(settings, settings, {}, first, until)
    at = dict(first)
    while left := stretch.left(at):
        ranges = stretch.next_ranges(at)
        # A lane that has something left gets one at least, however little is allowed.
        assert 0 < sum(end - start for start, end in ranges.values()) <= most + len(ranges)
        for lane, (start, end) in ranges.items():
            assert start == at[lane] < end <= until[lane]
            at[lane] = end
        assert stretch.left(at) < left
    assert at == until


@pytest.mark.parametrize(("semantics", "level"), [("exactly-once", 0), ("at-least-once", 1), ("at-most-once", 1)])
def test_the_start_line_names_the_delivery_and_a_weaker_one_is_a_warning(
    caplog: pytest.LogCaptureFixture, semantics: str, level: int
) -> None:
    with caplog.at_level(logging.INFO, "pipeline"):
        Observer().on_start(1, {}, Delivery(semantics=semantics))
    first, *more = caplog.records
    assert f"delivery={semantics} atomicity=lane" in first.getMessage()
    assert [(record.levelname, f"delivery={semantics}: a crash may" in record.getMessage()) for record in more] == [
        ("WARNING", True)
    ] * level


def windows_settings() -> Settings:
    """Return settings of the windows path, which leave `[dedup]` as it is."""
    given = settings_for().model_dump()
    output = {**given["output"], "topics": ("totals", "late")}
    windows = {"flow": {"path": "windows"}, "windows": {"late_topic": "late"}, "spark": {"checkpoint": "/state"}}
    return build({**given, **windows, "output": output})


def test_a_job_whose_windows_count_repeats_twice_says_so_at_its_start_and_in_the_doctor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = windows_settings()
    assert (settings.dedup.strategy, settings.upstream_dedup) == ("sequence", "none")
    with caplog.at_level(logging.INFO, "pipeline"):
        Observer(dedup=settings.upstream_dedup).on_start(1, {}, settings.delivery)
    first, warning = caplog.records
    assert first.getMessage().endswith("delivery=exactly-once atomicity=lane dedup=none")
    assert warning.levelname == "WARNING"
    assert "dedup=none: windows count twice what the upstream sent twice" in warning.getMessage()
    (finding,) = machine.dedup(Site(settings))
    assert (finding.state, finding.what) == ("warn", "dedup")
    assert "count twice" in finding.detail
    (finding,) = machine.dedup(Site(settings_with()))
    assert (finding.state, finding.detail) == ("ok", "sequence")
    assert [*machine.dedup(Site(settings_with(semantics="at-least-once")))] == []


@pytest.mark.parametrize(
    ("semantics", "state", "word"),
    [
        ("exactly-once", "ok", "exactly-once, visible by lane"),
        ("at-least-once", "warn", "a crash may repeat output"),
        ("at-most-once", "warn", "a crash may lose output"),
    ],
)
def test_doctor_tells_which_delivery_is_set(semantics: str, state: str, word: str) -> None:
    (finding,) = machine.delivery(Site(settings_with(semantics=semantics)))
    assert (finding.state, word in finding.detail) == (state, True)


def test_each_delivery_allows_only_its_own_kind_of_loss() -> None:
    lost, doubled = World.exact(settings_for()), World.exact(settings_for())
    partition, log = next(item for item in lost.topics["receipts"].items() if item[1])
    del log[3]
    row = doubled.topics["receipts"][partition][3]
    doubled.append("receipts", partition, row.key, row.value, row.headers)
    kept = {
        (semantics, name): audited(world, semantics).kept
        for semantics in ("exactly-once", "at-most-once")
        for name, world in (("lost", lost), ("doubled", doubled))
    }
    assert kept == {
        ("exactly-once", "lost"): False,
        ("exactly-once", "doubled"): False,
        ("at-most-once", "lost"): True,
        ("at-most-once", "doubled"): False,
    }


def test_without_dedup_every_source_record_is_expected() -> None:
    world = World.exact(settings_for())
    by_dedup, without = audited(world, "exactly-once"), audited(world, "at-least-once")
    assert by_dedup.exact
    # The world was written with dedup: what it held back is missing, and at-least-once allows no loss.
    assert without.expected > by_dedup.expected
    assert without.lost > 0
    assert not without.kept


def test_a_comparison_that_shows_no_difference_is_no_success() -> None:
    exact = audited(World.exact(settings_for()), "exactly-once")
    same = {"exactly-once": exact, "at-least-once": exact, "at-most-once": exact}
    assert not as_meant(same)
    console = Console(width=120, record=True)
    console.print(table_of(same))
    assert "at-most-once" in console.export_text()
