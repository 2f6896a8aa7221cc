"""The audit of the shuffled path is exact on exact topics, and finds each way to spoil them: the checker is checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from tests.support.reference import OUTPUT_PARTITIONS, World, Written

from pipeline.errors import PipelineError
from pipeline.flow.recomputed import Recomputed
from pipeline.flow.shuffled import CORRECTION
from pipeline.lanes.record import Counters
from pipeline.lanes.token import Planned
from pipeline.observe.audit.placement import key_hash
from pipeline.observe.audit.records import Record
from pipeline.observe.audit.shuffled import judge_shuffled
from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.flow.recomputed import Claimed
    from pipeline.observe.audit.result import AuditResult
    from pipeline.settings import Settings

MINUTE, HOUR = 60_000, 3_600_000
LANES, RECORDS = 2, 10
WATERMARK = 6 * MINUTE
NEWEST = WATERMARK + MINUTE  # of the events: the watermark is a minute behind it
LATE = (1, 4)  # source partition and offset of the event that came late
DEAD = (0, 2)
FINDINGS = (
    "lost",
    "duplicated",
    "unexpected",
    "out_of_order",
    "split_keys",
    "repeated_too_soon",
    "counters_wrong",
    "open_transactions",
)
Result = Any  # topic, key, value, headers


def settings_for(**sections: Any) -> Settings:
    """Return settings of the shuffled path."""
    return build(
        {
            "app": {"id": "app"},
            "source": {"bootstrap": "localhost:1", "topic": "payments"},
            "output": {"topics": ("totals", "late"), "dead_letter_topic": "dead"},
            "spark": {"checkpoint": "/state"},
            **sections,
        }
    )


WINDOWS = {"flow": {"path": "windows"}, "windows": {"watermark_seconds": 60, "late_topic": "late"}}
DEDUP = {"dedup": {"strategy": "window", "horizon_seconds": 3_600}}


class Case(World):
    """Topics of the shuffled path in memory, and what must be in them."""

    def __init__(self, settings: Settings) -> None:
        """Let the source have two partitions, one record of which is a dead letter."""
        log = {lane: [Record(lane, at, 5, b"k", b"v", []) for at in range(RECORDS)] for lane in range(LANES)}
        super().__init__(settings, log)
        names = (*settings.output.topics, settings.output.dead_letter_topic)
        self.topics = {name: {number: [] for number in range(OUTPUT_PARTITIONS)} for name in names}
        self.must = Recomputed(read=LANES * RECORDS, dead=Counter({("decode", *DEAD): 1}))
        self.lanes = {lane: Written(counters=Counters(read=RECORDS)) for lane in range(LANES)}
        self.lanes[0].counters.dead_letters["decode"] = 1
        self.aside("dead", "decode", DEAD, "not JSON")

    def aside(self, topic: str, reason: str, place: tuple[int, int], detail: str) -> None:
        """Write a record that was set aside."""
        told = {"reason": reason, "detail": detail, "partition": str(place[0]), "offset": str(place[1])}
        headers = [(f"dead-letter-{name}", value.encode()) for name, value in told.items()]
        self.append(topic, 0, b"k", b"v", [*headers])

    def put(self, one: Result, at_ms: int = 5) -> None:
        """Write a result to the partition of its key."""
        topic, key, value, headers = one
        log = self.topics[topic][home(key)]
        log.append(Record(home(key), 2 * len(log), at_ms, key, value, [*headers]))
        self.lanes[crc32(key) % LANES].counters.written += 1

    def audited(self, *, accept_repeats: bool = False) -> AuditResult:
        """Judge the topics as they are now."""
        ends = tuple(RECORDS + 1 for _ in range(LANES))
        token = Planned("query", 7, tuple(0 for _ in ends), ends, WATERMARK, 0).token()
        self.lane_records = []
        for lane in range(LANES):
            self.commit_lane(lane, token=token)
        return judge_shuffled(self.settings, self, self.recompute, accept_repeats=accept_repeats)

    def recompute(self, claimed: Claimed) -> Recomputed:
        """Stand for the recomputation: whatever is claimed."""
        assert claimed.watermark_ms == WATERMARK
        return replace(self.must, outputs=Counter(self.must.outputs))


def home(key: bytes) -> int:
    """Return the partition of a key, as Kafka's clients choose it."""
    return key_hash(key) % OUTPUT_PARTITIONS


def result(key: bytes, value: str, topic: str = "totals") -> Result:
    """Return a result without headers."""
    return topic, key, value.encode(), ()


@pytest.fixture
def windows() -> Case:
    """Return windows of five minutes for four keys, and one late event."""
    case = Case(settings_for(**WINDOWS))
    for minute in range(1, 6):
        for key in (b"a", b"b", b"c", b"d"):
            one = result(key, f"minute {minute}")
            case.must.outputs[one] += 1
            case.must.place(one, 0, minute * MINUTE)
            case.put(one)
    case.must.times = [1, 2, NEWEST]
    case.must.late = {LATE: WATERMARK}
    case.lanes[1].counters.verdicts["late"] = 1
    case.aside("late", "late", LATE, f"batch 7, watermark {WATERMARK} ms")
    return case


def findings(found: AuditResult) -> dict[str, int]:
    """Return what is wrong, by name; whatever it is, the result must not be exact, nor kept."""
    values = {name: getattr(found, name) for name in FINDINGS}
    sizes = {name: value if isinstance(value, int) else len(value) for name, value in values.items()}
    wrong = {name: size for name, size in sizes.items() if size}
    assert found.exact == found.kept == (not wrong)
    return wrong


def log_of(case: Case, key: bytes) -> list[Record]:
    """Return the partition that a key stands in."""
    return case.topics["totals"][home(key)]


def place_of(case: Case, key: bytes) -> list[int]:
    """Return where the results of a key stand in its partition."""
    return [place for place, one in enumerate(log_of(case, key)) if one.key == key]


def test_windows_that_are_exact_are_found_exact(windows: Case) -> None:
    found = windows.audited()
    assert findings(found) == {}
    assert (found.expected, found.found, found.read, found.verdicts) == (21, 21, 20, {"late": 1})
    assert found.examples == []


def lose(case: Case) -> None:
    """Take a result away."""
    del log_of(case, b"a")[place_of(case, b"a")[2]]


def repeat(case: Case) -> None:
    """Write the newest result of a key twice."""
    log = log_of(case, b"a")
    log.append(log[place_of(case, b"a")[-1]])


def change(case: Case) -> None:
    """Write another content."""
    log, place = log_of(case, b"a"), place_of(case, b"a")[2]
    log[place] = log[place]._replace(value=b"minute 3, and a payment that nobody made")


def head(case: Case) -> None:
    """Mark a result as a correction, which is to be added to another."""
    log, place = log_of(case, b"a"), place_of(case, b"a")[2]
    log[place] = log[place]._replace(headers=[CORRECTION])


def swap(case: Case) -> None:
    """Write the results of two minutes in the wrong order."""
    log, (first, second) = log_of(case, b"a"), place_of(case, b"a")[:2]
    log[first], log[second] = log[second], log[first]


def move(case: Case) -> None:
    """Write a result to another partition than its key's."""
    one = log_of(case, b"a").pop(place_of(case, b"a")[-1])
    away = (home(b"a") + 1) % OUTPUT_PARTITIONS
    case.topics["totals"][away].append(one._replace(partition=away))


def lose_a_letter(case: Case) -> None:
    """Take the dead letter away."""
    case.topics["dead"][0].clear()


def repeat_a_letter(case: Case) -> None:
    """Write it twice."""
    case.topics["dead"][0] *= 2


def leave_open(case: Case) -> None:
    """Leave a transaction open."""
    case.open.add(("totals", 0))


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (lose, {"lost": 1, "counters_wrong": 1}),
        (repeat, {"duplicated": 1, "counters_wrong": 1}),
        (change, {"lost": 1, "unexpected": 1}),
        (head, {"lost": 1, "unexpected": 1}),
        (swap, {"out_of_order": 1}),
        (move, {"split_keys": 1}),
        (lose_a_letter, {"lost": 1}),
        (repeat_a_letter, {"duplicated": 1}),
        (leave_open, {"open_transactions": 1}),
    ],
)
def test_what_is_spoilt_is_found(windows: Case, spoil: Callable[[Case], None], wrong: dict[str, int]) -> None:
    spoil(windows)
    assert findings(windows.audited()) == wrong


@pytest.mark.parametrize("counter", ["read", "written", "late", "dead letters"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_counter_that_is_off_by_one_is_found(windows: Case, counter: str, by: int) -> None:
    counters = windows.lanes[0].counters
    if counter == "late":
        windows.lanes[1].counters.verdicts["late"] += by
    elif counter == "dead letters":
        counters.dead_letters["decode"] += by
    else:
        setattr(counters, counter, getattr(counters, counter) + by)
    found = windows.audited()
    assert findings(found) == {"counters_wrong": 1}
    assert found.counters_wrong[0].startswith(f"{counter}: the lanes counted ")


@pytest.mark.parametrize(
    ("place", "event_ms", "watermark", "said"),
    [
        (LATE, WATERMARK, WATERMARK, "there 2 times"),
        ((0, 7), None, WATERMARK, "no sound event of the source"),
        ((0, 7), WATERMARK + 1, WATERMARK, "was not late by watermark"),
        # No event justifies such a watermark, or it is ahead of all that the lanes know.
        ((0, 7), 1, WATERMARK - 1, "was not late by watermark"),
        ((0, 7), 1, NEWEST, "was not late by watermark"),
    ],
    ids=["twice", "no event", "not late", "no such watermark", "a watermark to come"],
)
def test_a_late_record_that_is_there_twice_or_was_not_late_is_found(
    windows: Case, place: tuple[int, int], event_ms: int | None, watermark: int, said: str
) -> None:
    windows.aside("late", "late", place, f"batch 7, watermark {watermark} ms")
    if place != LATE:
        windows.lanes[0].counters.verdicts["late"] = 1
    if event_ms is not None:
        windows.must.late[place] = event_ms
    found = windows.audited()
    assert findings(found) == {"counters_wrong": 1}
    assert said in found.counters_wrong[0]


def test_a_record_in_the_late_topic_that_no_job_wrote_ends_the_audit(windows: Case) -> None:
    windows.append("late", 0, b"k", b"v", [])
    with pytest.raises(PipelineError, match="not written by this job"):
        windows.audited()


def test_topics_that_are_written_to_meanwhile_end_the_audit(windows: Case) -> None:
    windows.moves = True
    with pytest.raises(PipelineError, match="written to while it was audited"):
        windows.audited()


def test_a_key_that_moved_because_its_topic_grew_is_no_fault(windows: Case) -> None:
    partitions = windows.topics["totals"]
    windows.topics["totals"][OUTPUT_PARTITIONS] = []
    moved = 0
    for log in [*partitions.values()]:
        for one in [*log]:
            away = key_hash(one.key or b"") % (OUTPUT_PARTITIONS + 1)
            if one.value == b"minute 5" and away != one.partition:
                log.remove(one)
                partitions[away].append(one._replace(partition=away))
                moved += 1
    assert moved
    found = windows.audited()
    assert findings(found) == {}
    assert [grown.topic for grown in found.grown] == ["totals"]


@pytest.fixture
def dedup() -> Case:
    """Return ids behind `window` dedup: one that came three times in an hour, and one that came once."""
    case = Case(settings_for(**DEDUP))
    for offset, name in enumerate(("thrice", "once", "thrice", "thrice")):
        one = result(b"a", name)
        case.must.by_id.setdefault(name, []).append((one,))
        case.must.place(one, 0, offset)
    for name in case.must.by_id:
        case.put(result(b"a", name), HOUR)
    case.lanes[0].counters.verdicts = {"fresh": 2, "duplicate": 2}
    return case


def again(case: Case, one: Result, at_ms: int) -> None:
    """Let a copy through that dedup should have known, as fresh: the counters agree with it."""
    case.put(one, at_ms)
    verdicts = case.lanes[0].counters.verdicts
    verdicts["fresh"] += 1
    verdicts["duplicate"] -= 1


def test_ids_that_are_there_once_are_exact(dedup: Case) -> None:
    found = dedup.audited()
    assert findings(found) == {}
    assert found.repeated_ids == 0
    assert not any("more than once" in line for line in found.remarks())


@pytest.mark.parametrize("apart", [0, 1_000, HOUR])
def test_an_id_that_was_written_again_within_the_horizon_is_found(dedup: Case, apart: int) -> None:
    again(dedup, result(b"a", "thrice"), HOUR + apart)
    found = dedup.audited()
    assert findings(found) == {"repeated_too_soon": 1}
    assert "ids written more than once: 1, 1 of them within the horizon" in found.remarks()
    accepted = dedup.audited(accept_repeats=True)
    assert accepted.exact
    assert accepted.kept
    assert "ids written more than once: 1, 1 of them within the horizon, accepted" in accepted.remarks()


def test_an_id_that_was_written_again_after_the_horizon_is_counted_and_no_fault(dedup: Case) -> None:
    again(dedup, result(b"a", "thrice"), 2 * HOUR + 1)
    found = dedup.audited()
    assert findings(found) == {}
    assert "ids written more than once: 1, 0 of them within the horizon" in found.remarks()


def test_copies_of_an_id_that_differ_are_repeats_all_the_same(dedup: Case) -> None:
    other = result(b"a", "thrice, with another content")
    dedup.must.by_id["thrice"][1] = (other,)
    again(dedup, other, HOUR + 1)
    assert findings(dedup.audited()) == {"repeated_too_soon": 1}


def test_ids_whose_outputs_look_alike_are_told_from_repeats_by_their_number(dedup: Case) -> None:
    alike = result(b"a", "thrice")
    dedup.must.by_id["its like"] = [(alike,)]
    dedup.put(alike, HOUR)
    dedup.lanes[0].counters.verdicts["fresh"] += 1
    found = dedup.audited()
    assert findings(found) == {}
    assert found.repeated_ids == 0
    again(dedup, alike, HOUR + 1)
    assert findings(dedup.audited()) == {"repeated_too_soon": 1}


def test_an_id_that_is_there_more_often_than_it_came_is_duplicated(dedup: Case) -> None:
    dedup.put(result(b"a", "once"), HOUR)
    assert findings(dedup.audited()) == {"duplicated": 1}


def test_an_id_of_which_no_copy_is_there_is_lost(dedup: Case) -> None:
    log_of(dedup, b"a").pop()
    assert findings(dedup.audited()) == {"lost": 1, "counters_wrong": 1}


@pytest.mark.parametrize("counter", ["fresh", "duplicate"])
def test_a_verdict_that_is_off_by_one_is_found(dedup: Case, counter: str) -> None:
    dedup.lanes[1].counters.verdicts[counter] = 1
    assert "counters_wrong" in findings(dedup.audited())


def test_results_of_one_source_partition_in_another_order_than_their_records_are_found(dedup: Case) -> None:
    dedup.must.places = {result(b"a", "thrice"): (0, 8), result(b"a", "once"): (0, 3)}
    assert findings(dedup.audited()) == {"out_of_order": 1}
    dedup.must.places[result(b"a", "once")] = (1, 3)
    assert findings(dedup.audited()) == {}, "of two source partitions no order is promised"
