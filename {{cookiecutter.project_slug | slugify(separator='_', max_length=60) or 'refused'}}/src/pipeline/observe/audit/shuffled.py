"""The audit of the shuffled path: results, dead letters and late records against the source, computed anew.

Guarantee: exact only if results + late records + dead letters = all of the input: every result that is due is there
once, with the content that the user's function gives over all events that were not late; every late event was one (at
or before a watermark that some earlier event justifies), and stands in the late topic once; every other one is counted
in its windows. Behind `window` dedup an id is there once, and again only a horizon later. The results of a key stand in
one partition, in order. What cannot be proven (`late = "drop"` forgets which events they were) ends in an error.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from pipeline.errors import PipelineError
from pipeline.flow.recomputed import Claimed, Recomputed, frozen
from pipeline.observe.audit.claims import Claims
from pipeline.observe.audit.found import Found
from pipeline.observe.audit.judge import check_still
from pipeline.observe.audit.letters import PREFIX
from pipeline.observe.audit.repeats import Chosen, chosen
from pipeline.observe.audit.result import AuditResult
from pipeline.observe.audit.tally import EXAMPLES, Counts
from pipeline.observe.audit.topics import KafkaTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from pipeline.observe.audit.claims import Lane, Topics
    from pipeline.observe.audit.records import Record
    from pipeline.settings import Settings

DETAIL = re.compile(r"batch (\d+), watermark (-?\d+) ms")
LATE = "late"
FIRST_WATERMARK = 0  # Spark's, before it has seen an event


def audit_shuffled(
    settings: Settings,
    recompute: Callable[[Claimed], Recomputed],
    *,
    patience: float = 5.0,
    accept_repeats: bool = False,
) -> AuditResult:
    """Audit an app that is not running; with `accept_repeats`, ids that came again too soon are told, and no fault."""
    return judge_shuffled(settings, KafkaTopics(settings, patience=patience), recompute, accept_repeats=accept_repeats)


def judge_shuffled(
    settings: Settings, topics: Topics, recompute: Callable[[Claimed], Recomputed], *, accept_repeats: bool = False
) -> AuditResult:
    """Audit everything that the topics hold."""
    ends = topics.ends()
    lanes = Claims(settings, topics)
    late = _late(settings, topics)
    claimed = _claimed(settings, lanes.newest, late)
    must = recompute(claimed)
    faults = [*lanes.wrong, *_late_faults(settings, late, must, claimed)]
    found = Found(must.places)
    for topic in settings.output.topics:
        if topic != settings.late_topic:
            for one in topics.written(topic):
                found.add(topic, frozen((topic, one.key, one.value, one.headers)), one)
    ids = Chosen()
    if settings.dedup.strategy == "window":
        ids = chosen(must.by_id, found.times, settings.dedup.horizon_seconds * 1000)
        must.outputs = ids.outputs
    aside = settings.output.dead_letter_topic
    letters = Counter(_place(aside, one) for one in topics.written(aside))
    examples: list[str] = []
    outputs = _compared(must.outputs, found.counts, lambda one: str(one[0]), settings.output.topics, examples)
    dead = _compared(must.dead, letters, lambda one: str(one[0]), sorted({one[0] for one in must.dead}), examples)
    split, grown = found.placed(Counter(topic for topic, _ in ends))
    examples += [*found.examples, *(key.line for key in split[:EXAMPLES])]
    examples += [f"written again within the horizon: {str(name)[:300]}" for name in ids.too_soon[:EXAMPLES]]
    behind = {number: topics.behind(lane) for number, lane in lanes.newest.items()}
    check_still(settings, ends, topics.ends())
    return AuditResult(
        outputs=outputs,
        dead_letters=dead,
        out_of_order=found.out_of_order,
        split_keys=len(split),
        grown=grown,
        counters_wrong=[*faults, *_counters(lanes.newest, must, outputs, len(late), ids)],
        open_transactions=[f"{topic} [{number}]" for (topic, number), (stable, end) in ends.items() if stable != end],
        behind=behind,
        read=must.read,
        verdicts=sum((Counter(lane.verdicts) for lane in lanes.newest.values()), Counter()),
        examples=examples,
        repeated_ids=ids.repeated,
        repeated_too_soon=len(ids.too_soon),
        repeats_accepted=accept_repeats,
    )


def _claimed(settings: Settings, lanes: Mapping[int, Lane], late: Mapping[tuple[int, int], Any]) -> Claimed:
    if len({(lane.token or {}).get("batch_id", -1) for lane in lanes.values()}) > 1:
        msg = f"{settings.lane_topic}: its lanes stand at different batches: let the job run until it has caught up"
        raise PipelineError(msg)
    if settings.windows.late == "drop" and any(lane.verdicts.get(LATE) for lane in lanes.values()):
        msg = 'windows.late = "drop": late events were dropped and counted, and nothing says which: cannot be audited'
        raise PipelineError(msg)
    token = lanes[0].token or {}
    return Claimed(
        {number: (lane.start_offset, lane.next_offset) for number, lane in lanes.items()},
        int(token.get("watermark_ms", 0)),
        [(batch, partition, offset) for (partition, offset), (batch, _, _) in late.items()],
    )


def _late(settings: Settings, topics: Topics) -> dict[tuple[int, int], tuple[int, int, int]]:
    """The late records by their place in the source: batch, watermark, and how often each is there."""
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    topic = settings.late_topic
    for record in topics.written(topic) if topic else ():
        match = DETAIL.fullmatch(_told(record, "detail"))
        if match is None:
            raise PipelineError(_foreign(topic, record))
        _, *at = _place(topic, record)
        place = at[0], at[1]
        found[place] = int(match[1]), int(match[2]), found.get(place, (0, 0, 0))[2] + 1
    return found


def _late_faults(
    settings: Settings, late: Mapping[tuple[int, int], tuple[int, int, int]], must: Recomputed, claimed: Claimed
) -> Iterable[str]:
    """Late records that are no late events, or stand there twice."""
    delay = settings.windows.watermark_seconds * 1000
    times = sorted([*must.times, *must.late.values()])
    for place, (_, watermark, copies) in late.items():
        if copies > 1:
            yield f"late record {place}: there {copies} times"
        time = must.late.get(place)
        if time is None:
            yield f"late record {place}: no sound event of the source"
            continue
        # A watermark begins at 1970; then it is the time of some event less the delay, and only ever rises to the last.
        at = bisect_left(times, watermark + delay)
        some_event = at < len(times) and times[at] == watermark + delay
        justified = (some_event or watermark == FIRST_WATERMARK) and watermark <= claimed.watermark_ms
        if time > watermark or not justified:
            yield f"late record {place}: its event time {time} was not late by watermark {watermark}"


def _place(topic: str, letter: Record) -> tuple[str, int, int]:
    """Reason, source partition and offset of a record that was set aside."""
    try:
        return _told(letter, "reason"), int(_told(letter, "partition")), int(_told(letter, "offset"))
    except ValueError:
        raise PipelineError(_foreign(topic, letter)) from None


def _told(letter: Record, name: str) -> str:
    """What the job wrote in the header of that name: the last one, since the source's own come before."""
    values = [value for header, value in letter.headers if header == f"{PREFIX}{name}"]
    return (values[-1] or b"").decode(errors="backslashreplace") if values else ""


def _foreign(topic: str, record: Record) -> str:
    return f"{topic} [{record.partition}] offset {record.offset}: not written by this job; see who else writes there"


def _compared(
    must: Counter[Any],
    found: Counter[Any],
    name_of: Callable[[Any], str],
    names: Iterable[str],
    examples: list[str],
) -> dict[str, Counts]:
    counts: dict[str, Counts] = {name: Counts() for name in names}
    one: Hashable
    for one in must.keys() | found.keys():
        here = counts.setdefault(name_of(one), Counts())
        expected, there = must[one], found[one]
        here.expected += expected
        here.found += there
        here.lost += max(expected - there, 0)
        here.duplicated += max(there - expected, 0) if expected else 0
        here.unexpected += 0 if expected else there
        if expected != there and len(examples) < EXAMPLES:
            examples.append(f"expected {expected} times, found {there} times: {str(one)[:300]}")
    return counts


def _dropped(must: Recomputed) -> tuple[int, int]:
    """How many records had no outputs behind dedup: each id of which no copy has any once, each such copy at most."""
    without = [sum(not copy for copy in copies) for copies in must.by_id.values()]
    only = sum(number == len(copies) for number, copies in zip(without, must.by_id.values(), strict=True))
    return only, sum(without)


def _counters(
    lanes: Mapping[int, Lane], must: Recomputed, outputs: Mapping[str, Counts], late: int, ids: Chosen
) -> Iterable[str]:
    """What the lanes counted against what is there."""
    told = {
        "read": (sum(lane.read for lane in lanes.values()), must.read),
        "written": (sum(lane.written for lane in lanes.values()), sum(one.found for one in outputs.values())),
        "late": (sum(lane.verdicts.get(LATE, 0) for lane in lanes.values()), late),
        "dead letters": (sum(sum(lane.dead_letters.values()) for lane in lanes.values()), must.dead.total()),
    }
    if must.by_id:
        fresh, hits = (sum(lane.verdicts.get(name, 0) for lane in lanes.values()) for name in ("fresh", "duplicate"))
        dropped = sum(lane.dropped for lane in lanes.values())
        told["fresh and not dropped"] = fresh - dropped, ids.kept
        told["fresh or duplicate"] = fresh + hits, sum(map(len, must.by_id.values()))
        least, most = _dropped(must)
        told["dropped"] = dropped, min(max(dropped, least), most)
    for name, (counted, true) in told.items():
        if counted != true:
            yield f"{name}: the lanes counted {counted}, the topics say {true}"
