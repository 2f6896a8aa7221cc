"""The audit is exact on an exact pipeline, and finds each way to spoil one: the checker is checked."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.support.reference import World, outputs_of, settings_for

from pipeline.errors import PipelineError, Unreachable
from pipeline.local.payments import ABORTED_PREFIX
from pipeline.observe.audit import topics
from pipeline.observe.audit.judge import judge
from pipeline.observe.audit.model import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.observe.audit.records import Expected, Record
    from pipeline.observe.audit.result import AuditResult

FINDINGS = ("lost", "duplicated", "unexpected", "out_of_order", "split_keys", "counters_wrong", "open_transactions")


@pytest.fixture
def world() -> World:
    """Everything written exactly once; in it a key with several receipts, and each reason of dead letters."""
    return World.exact(settings_for())


def audited(world: World) -> AuditResult:
    """Judge the world as it is now."""
    return judge(world.settings, world, world.expected())


def findings(result: AuditResult) -> dict[str, int]:
    """Return what is wrong, by name; counts, also of lines. Whatever it is, the result must not be exact."""
    values = {name: getattr(result, name) for name in FINDINGS}
    sizes = {name: value if isinstance(value, int) else len(value) for name, value in values.items()}
    wrong = {name: size for name, size in sizes.items() if size}
    assert result.exact == (not wrong)
    return wrong


def receipts(world: World) -> tuple[int, list[Record]]:
    """Return a partition of the receipts topic and its log."""
    return next((partition, log) for partition, log in world.topics["receipts"].items() if log)


def two_of_a_key(log: list[Record]) -> tuple[int, int]:
    """Return the places of two different records of one key."""
    first: dict[bytes | None, int] = {}
    for place, record in enumerate(log):
        if log[first.setdefault(record.key, place)].value != record.value:
            return first[record.key], place
    pytest.fail("no key has two receipts")


def dead(world: World, reason: str) -> tuple[list[Record], int]:
    """Return the log with a dead letter of this reason, and its place there."""
    wanted = ("dead-letter-reason", reason.encode())
    for log in world.topics["dead"].values():
        for place, record in enumerate(log):
            if wanted in record.headers:
                return log, place
    pytest.fail(f"no dead letter {reason}")


def test_an_exact_pipeline_is_found_exact(world: World) -> None:
    result = audited(world)
    assert findings(result) == {}
    assert result.exact
    assert result.caught_up
    assert result.examples == []
    assert result.expected == result.found == sum(1 for topic in world.topics for _ in world.written(topic))
    assert result.read == sum(len(log) for log in world.sources.values())


def test_the_workload_has_all_verdicts_but_stale_and_all_reasons_but_stale(world: World) -> None:
    result = audited(world)
    assert {verdict for verdict, count in result.verdicts.items() if count} == {
        "fresh",
        "duplicate",
        "old-epoch",
        "conflict",
    }
    assert {reason for reason, counts in result.dead_letters.items() if counts.expected} == {*REASONS} - {"stale"}


@pytest.mark.parametrize("stale", ["dead-letter", "drop"])
def test_small_limits_make_stale_records_and_the_audit_agrees_with_the_ledger_on_each(stale: str) -> None:
    settings = settings_for(recent_ids=7, hashes=2, ledger_bytes=1_024, stale=stale)
    result = audited(World.exact(settings, count=3_000))
    assert findings(result) == {}
    assert result.verdicts["stale"] > 10
    assert (result.dead_letters["stale"].found > 10) == (stale == "dead-letter")


def test_an_unread_rest_of_the_source_is_behind_and_no_fault() -> None:
    world = World.exact(settings_for())
    rest = [record._replace(offset=record.offset + 10_000) for record in world.sources[1][:7]]
    world.sources[1] += rest
    result = audited(world)
    assert result.behind == {0: 0, 1: 7, 2: 0}
    assert result.exact
    assert not result.caught_up


def test_offsets_that_were_lost_before_they_were_read_are_a_remark_and_no_fault() -> None:
    result = audited(World.exact(settings_for(), lost=40))
    assert findings(result) == {}
    assert result.exact
    assert result.lost_offsets == result.as_dict()["lost_offsets"] == 40
    assert "lost to retention, accepted: 40 offsets" in result.remarks()


def test_a_lane_that_counts_offsets_as_lost_which_the_source_still_holds_is_found(world: World) -> None:
    world.lanes[1].counters.lost = 7
    world.commit_lane(1)
    result = audited(world)
    assert result.counters_wrong == ["app.payments.1: lost is 7, must be 0"]
    assert result.lost_offsets == 0
    assert not result.exact


def test_a_dropped_row_is_lost(world: World) -> None:
    del receipts(world)[1][3]
    assert findings(audited(world)) == {"lost": 1}


def test_all_rows_of_a_cut_batch_are_lost(world: World) -> None:
    del receipts(world)[1][5:25]
    assert findings(audited(world)) == {"lost": 20}


def test_a_repeated_row_is_duplicated(world: World) -> None:
    _, log = receipts(world)
    log.append(log[3]._replace(offset=9_999))
    result = audited(world)
    assert findings(result) == {"duplicated": 1}
    assert result.examples == [f"duplicated: receipts, partition {log[3].partition}, offset 9999"]


def test_a_row_repeated_in_another_partition_is_duplicated_and_splits_its_key(world: World) -> None:
    partition, log = receipts(world)
    other = (partition + 1) % len(world.topics["receipts"])
    world.topics["receipts"][other].append(log[3]._replace(partition=other, offset=9_999))
    assert findings(audited(world)) == {"duplicated": 1, "split_keys": 1}


def test_a_row_moved_to_another_partition_splits_its_key(world: World) -> None:
    partition, log = receipts(world)
    moved = log.pop(two_of_a_key(log)[1])
    other = (partition + 1) % len(world.topics["receipts"])
    world.topics["receipts"][other].append(moved._replace(partition=other, offset=9_999))
    assert findings(audited(world)) == {"split_keys": 1}


def test_two_swapped_rows_of_one_key_are_out_of_order(world: World) -> None:
    _, log = receipts(world)
    left, right = two_of_a_key(log)
    log[left], log[right] = (
        log[left]._replace(key=log[right].key, value=log[right].value),
        log[right]._replace(key=log[left].key, value=log[left].value),
    )
    result = audited(world)
    assert set(findings(result)) == {"out_of_order"}
    assert result.lost == 0


def test_swapped_rows_of_different_keys_are_no_fault(world: World) -> None:
    _, log = receipts(world)
    place = next(place for place in range(len(log)) if log[place].key != log[place + 1].key)
    log[place], log[place + 1] = log[place + 1], log[place]
    assert audited(world).exact


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record._replace(value=record.value + b" "),
        lambda record: record._replace(value=None),
        lambda record: record._replace(key=None),
        lambda record: record._replace(headers=[]),
        lambda record: record._replace(headers=[*record.headers, ("more", None)]),
    ],
    ids=["value", "no value", "no key", "no headers", "more headers"],
)
def test_a_changed_row_is_lost_and_another_unexpected(world: World, change: Callable[[Any], Record]) -> None:
    _, log = receipts(world)
    log[3] = change(log[3])
    assert findings(audited(world)) == {"lost": 1, "unexpected": 1}


def test_a_row_of_an_aborted_upstream_transaction_is_unexpected(world: World) -> None:
    value = b'{"id":"' + ABORTED_PREFIX + b'1","account":"a","amount":5.00}'
    made = outputs_of(world.settings, value)
    assert isinstance(made, list)
    for topic, key, content, headers in made:
        world.append(topic, 0, key, content, list(headers or ()))
    assert findings(audited(world)) == {"unexpected": 1}


def test_a_row_written_twice_on_purpose_is_expected_twice(world: World) -> None:
    rows = world.expected()()
    twice: list[Expected] = [
        (partition, offset, made if isinstance(made, str) else [*made, *made]) for partition, offset, made in rows
    ]
    for topic in world.settings.output.topics:
        for log in world.topics[topic].values():
            log[:] = [copy for record in log for copy in (record, record._replace(offset=record.offset + 1))]
    for lane in world.lanes.values():
        lane.counters = replace(lane.counters, written=2 * lane.counters.written)
    for partition in world.sources:
        world.commit_lane(partition)
    assert judge(world.settings, world, lambda: twice).exact
    _, log = receipts(world)
    del log[3]
    assert findings(judge(world.settings, world, lambda: twice)) == {"lost": 1}


@pytest.mark.parametrize("counter", ["read", "written", "dropped"])
def test_a_counter_off_by_one_is_named(world: World, counter: str) -> None:
    counters = world.lanes[1].counters
    world.commit_lane(1, counters=replace(counters, **{counter: getattr(counters, counter) + 1}))
    result = audited(world)
    assert findings(result) == {"counters_wrong": 1}
    was = getattr(counters, counter)
    assert result.counters_wrong == [f"app.payments.1: {counter} is {was + 1}, must be {was}"]


@pytest.mark.parametrize(("kind", "name"), [("verdicts", "duplicate"), ("dead_letters", "decode"), ("verdicts", "odd")])
def test_a_verdict_or_reason_off_by_one_is_named(world: World, kind: str, name: str) -> None:
    counters = world.lanes[1].counters
    before = getattr(counters, kind)
    changes: dict[str, Any] = {kind: {**before, name: before.get(name, 0) + 1}}
    world.commit_lane(1, counters=replace(counters, **changes))
    result = audited(world)
    assert findings(result) == {"counters_wrong": 1}
    assert name in result.counters_wrong[0]


def test_a_lane_whose_next_offset_or_run_falls_is_named_even_if_it_rises_again(world: World) -> None:
    world.commit_lane(2, next_offset=5)
    world.commit_lane(2, run=3)
    world.commit_lane(2, run=2)
    result = audited(world)
    assert findings(result) == {"counters_wrong": 2}
    assert "next_offset fell" in result.counters_wrong[0]
    assert "run fell from 3 to 2" in result.counters_wrong[1]


def test_rows_beyond_the_lanes_next_offset_are_unexpected(world: World) -> None:
    world.lane_records.clear()
    for partition in world.sources:
        world.commit_lane(partition, next_offset=0 if partition == 1 else world.end(partition))
    found = findings(audited(world))
    assert found["unexpected"] == len(world.lanes[1].sent)


@pytest.mark.parametrize("reason", ["identity", "old-epoch", "conflict", "decode"])
def test_a_missing_dead_letter_is_lost_and_counted_under_its_reason(world: World, reason: str) -> None:
    log, place = dead(world, reason)
    del log[place]
    result = audited(world)
    assert findings(result) == {"lost": 1}
    assert result.dead_letters[reason].lost == 1


@pytest.mark.parametrize("reason", ["identity", "old-epoch", "conflict", "decode"])
def test_a_repeated_dead_letter_is_duplicated(world: World, reason: str) -> None:
    log, place = dead(world, reason)
    log.append(log[place])
    result = audited(world)
    assert findings(result) == {"duplicated": 1}
    assert result.dead_letters[reason].duplicated == 1


@pytest.mark.parametrize(
    "header", ["reason", "topic", "partition", "offset", "timestamp", "producer-id", "detail", "version"]
)
@pytest.mark.parametrize("change", ["altered", "missing"])
def test_a_dead_letter_with_another_header_is_lost_and_another_unexpected(
    world: World, header: str, change: str
) -> None:
    log, place = dead(world, "conflict")
    name = header if header == "producer-id" else f"dead-letter-{header}"
    others = [pair for pair in log[place].headers if pair[0] != name]
    spoilt = [(key, b"0" + (value or b"") if key == name else value) for key, value in log[place].headers]
    log[place] = log[place]._replace(headers=spoilt if change == "altered" else others)
    free_text = header in {"detail", "version"} and change == "altered"
    assert findings(audited(world)) == ({} if free_text else {"lost": 1, "unexpected": 1})


def test_a_dead_letter_with_other_bytes_is_lost_and_another_unexpected(world: World) -> None:
    log, place = dead(world, "decode")
    log[place] = log[place]._replace(value=(log[place].value or b"") + b"\0")
    assert findings(audited(world)) == {"lost": 1, "unexpected": 1}
    log[place] = log[place]._replace(value=b"", key=b"")
    assert findings(audited(world)) == {"lost": 1, "unexpected": 1}


def test_a_stray_record_in_the_dead_letter_topic_is_unexpected(world: World) -> None:
    world.append("dead", 0, b"k", b"v", [])
    result = audited(world)
    assert findings(result) == {"unexpected": 1}
    assert result.dead_letters["unknown"].unexpected == 1


@pytest.mark.parametrize("topic", ["receipts", "dead"])
def test_an_open_transaction_is_named(world: World, topic: str) -> None:
    world.open.add((topic, 1))
    result = audited(world)
    assert findings(result) == {"open_transactions": 1}
    assert result.open_transactions[0].startswith(f"{topic}, partition 1: ")


def test_a_source_record_on_which_the_user_function_says_nothing_ends_the_audit(world: World) -> None:
    rows = list(world.expected()())
    gone = rows.pop(0)
    with pytest.raises(PipelineError, match=f"partition {gone[0]}, offset {gone[1]}: .* returned nothing"):
        judge(world.settings, world, lambda: rows)


def test_a_source_record_that_the_user_function_returns_twice_ends_the_audit(world: World) -> None:
    rows = list(world.expected()())
    with pytest.raises(PipelineError, match="returned this record twice"):
        judge(world.settings, world, lambda: [*rows, rows[0]])


def test_rows_outside_of_the_lanes_and_their_order_do_not_matter(world: World) -> None:
    rows = [*reversed(list(world.expected()())), (0, 99_999, "decode"), (77, 0, "decode")]
    assert judge(world.settings, world, lambda: rows).exact


def test_a_lane_without_a_record_ends_the_audit(world: World) -> None:
    world.lane_records[:] = [record for record in world.lane_records if record.partition != 2]
    with pytest.raises(PipelineError, match=r"no record of lane 2 of payments: .* would repeat its output"):
        audited(world)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"app": "other"}, "holds lane other.payments.0 instead of app.payments.0"),
        ({"partition": 1}, "holds lane app.payments.1 instead of app.payments.0"),
        ({"topic_id": (0, 0)}, "created anew"),
    ],
)
def test_a_foreign_lane_record_ends_the_audit(world: World, changes: dict[str, Any], message: str) -> None:
    world.commit_lane(0, **changes)
    with pytest.raises(PipelineError, match=message):
        audited(world)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda _value: None, "tombstone"),
        (lambda _value: b"", "empty"),
        (lambda value: b"\1" + value[1:], "version 1"),
        (lambda value: b"\4" + value[1:], "version 4"),
        (lambda value: b"\3" + value[1:], "damaged"),
        (lambda value: value[:-3], "damaged"),
        (lambda value: value + b"\0", "1 bytes too many"),
    ],
)
def test_a_damaged_lane_record_ends_the_audit(
    world: World, spoil: Callable[[bytes | None], bytes | None], message: str
) -> None:
    world.lane_records[-1] = world.lane_records[-1]._replace(value=spoil(world.lane_records[-1].value))
    with pytest.raises(PipelineError, match=message):
        audited(world)


def test_topics_that_are_written_while_they_are_audited_end_the_audit(world: World) -> None:
    world.moves = True
    with pytest.raises(PipelineError, match="written to while it was audited; stop app"):
        audited(world)


def test_the_result_reads_well_for_people_and_machines(world: World) -> None:
    del receipts(world)[1][3]
    result = audited(world)
    assert result.line == f"audit: {result.expected} expected, {result.found} found, 1 lost, 0 duplicated"
    assert json.loads(json.dumps(result.as_dict()))["outputs"]["receipts"]["lost"] == 1
    console = Console(width=100)
    with console.capture() as drawn:
        console.print(result.table())
    assert "dead letters: identity" in drawn.get()
    assert any(line.startswith("lost: receipts, of source partition") for line in result.remarks())
    assert result.rows()[-1] == ("all", str(result.expected), str(result.found), "1", "0", "0")


def test_progress_ends_at_the_number_of_records_of_each_stage(world: World) -> None:
    seen: dict[str, int] = {}
    judge(world.settings, world, world.expected(), seen.__setitem__)
    assert seen["source partition 0"] == len(world.sources[0])
    assert seen["receipts"] == len(list(world.written("receipts")))


def test_the_audit_shares_no_code_with_the_lanes() -> None:
    code = "import pipeline.observe.audit, sys; print(*sorted(n for n in sys.modules if n.startswith('pipeline')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name for name in done.stdout.split() if not name.startswith("pipeline.observe")}
    settings = {f"pipeline.{name}" for name in ("settings", "section", "rules", "refused", "overlay", "consistency")}
    clusters = {f"pipeline.{name}" for name in ("kafka", "address", "client", "security", "locks", "denied")}
    assert loaded <= {"pipeline", "pipeline.errors", *clusters, *settings}


def test_a_silent_cluster_is_an_error_and_never_the_end_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "SILENCE_SECONDS", 0.5)
    nobody = topics.KafkaTopics(settings_for("127.0.0.1:1"), patience=0.0)
    with pytest.raises(Unreachable, match=r"partitions \[0\]: neither records nor an end for 0.5 s"):
        list(nobody._read("127.0.0.1:1", "receipts", {0: 0}))  # noqa: SLF001  what all reads are made of
    with pytest.raises(Unreachable, match=r"describe receipts: .* check the address"):
        nobody.written("receipts")
