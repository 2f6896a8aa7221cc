"""The audit itself: model the lanes, collect what must be there and what is there, compare.

Guarantee: judges only what it was given to read (`Topics`), so that the same code is checked on mutants in memory
and runs on real topics. What cannot be judged ends in an error, never in a good result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from pipeline.errors import PipelineError
from pipeline.observe.audit.claims import Claims
from pipeline.observe.audit.letters import Cuts, read_letter
from pipeline.observe.audit.model import REASONS, VERDICTS
from pipeline.observe.audit.placement import Grown, growth
from pipeline.observe.audit.records import digest, flat
from pipeline.observe.audit.result import AuditResult
from pipeline.observe.audit.tally import EXAMPLES, Tally
from pipeline.observe.audit.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pipeline.observe.audit.claims import Lane, Topics
    from pipeline.observe.audit.placement import Split
    from pipeline.observe.audit.records import Ends, Expected, Progress
    from pipeline.settings import Settings

PROGRESS_EVERY = 10_000

Item = TypeVar("Item")


def judge(
    settings: Settings,
    topics: Topics,
    expected_outputs: Callable[[], Iterable[Expected]],
    progress: Progress = lambda _stage, _records: None,
) -> AuditResult:
    """Audit everything that the topics hold; `progress` gets (stage, records so far)."""
    before = topics.ends()
    lanes = Claims(settings, topics)
    outputs = Tally(settings.output.topics)
    letters = Tally(REASONS, topic=settings.output.dead_letter_topic)
    cuts = _find_letters(settings, topics, letters, progress)
    truths = _model(settings, topics, lanes.newest.values(), letters, cuts, progress)
    _expect(settings, truths, expected_outputs(), outputs, progress)
    _find_outputs(settings, topics, outputs, progress)
    behind = {partition: topics.behind(lane) for partition, lane in lanes.newest.items()}
    after = topics.ends()
    check_still(settings, before, after)
    of_outputs, of_letters = outputs.compare(), letters.compare()
    grown = _grown(outputs, of_outputs.split, Counter(topic for topic, _ in after))
    split = [key for key in of_outputs.split if key.topic not in {topic.topic for topic in grown}]
    gone = {partition: topics.gone(lane) for partition, lane in lanes.newest.items()}
    wrong = [
        line
        for partition, truth in truths.items()
        for line in _differences(lanes.newest[partition], truth, gone[partition])
    ]
    return AuditResult(
        outputs=of_outputs.counts,
        dead_letters=of_letters.counts,
        out_of_order=of_outputs.out_of_order,
        split_keys=len(split),
        grown=grown,
        counters_wrong=[*lanes.wrong, *wrong],
        open_transactions=_open(after),
        behind=behind,
        read=sum(truth.read for truth in truths.values()),
        verdicts={verdict: sum(truth.verdicts[verdict] for truth in truths.values()) for verdict in VERDICTS},
        examples=[*of_outputs.examples, *of_letters.examples, *(key.line for key in split[:EXAMPLES])],
        lost_offsets=sum(gone.values()),
        delivery=settings.delivery.semantics,
    )


def _find_letters(settings: Settings, topics: Topics, letters: Tally, progress: Progress) -> Cuts:
    topic = settings.output.dead_letter_topic
    cuts = Cuts(settings.source.topic, topics.largest_letter())
    for record in _counted(topics.written(topic), topic, progress):
        cuts.note(record.headers)
        reason, content = read_letter(record)
        letters.find(reason, None, content, record.partition, record.offset)
    return cuts


def _model(  # noqa: PLR0913, PLR0917  what is read, and what is told of it
    settings: Settings, topics: Topics, lanes: Iterable[Lane], letters: Tally, cuts: Cuts, progress: Progress
) -> dict[int, Truth]:
    def expect_letter(reason: str, content: bytes, partition: int, offset: int) -> None:
        letters.expect(reason, None, content, (partition, offset, 0))

    truths = {}
    for lane in lanes:
        truth = truths[lane.partition] = Truth(settings, lane.partition, cuts, expect_letter)
        for record in _counted(topics.source(lane), f"source partition {lane.partition}", progress):
            truth.add(record)
    return truths


def _expect(
    settings: Settings, truths: dict[int, Truth], rows: Iterable[Expected], outputs: Tally, progress: Progress
) -> None:
    topic = settings.source.topic
    for partition, offset, made in _counted(rows, "user's function", progress):
        truth = truths.get(partition)
        settled = None if truth is None else truth.settle(offset, made if isinstance(made, str) else len(made))
        if settled is False:
            msg = f"{topic}, partition {partition}, offset {offset}: the user's function returned this record twice"
            raise PipelineError(msg)
        if settled and not isinstance(made, str):
            for place, (name, key, value, headers) in enumerate(made):
                content = digest((name.encode(), key, value, *flat(headers)))
                outputs.expect(name, key, content, (partition, offset, place))
    for partition, truth in truths.items():
        if truth.unsettled is not None:
            msg = (
                f"{topic}, partition {partition}, offset {truth.unsettled}: the user's function returned nothing for "
                "it, so its output cannot be judged; it must return each row, and be given the lanes' whole ranges"
            )
            raise PipelineError(msg)


def _find_outputs(settings: Settings, topics: Topics, outputs: Tally, progress: Progress) -> None:
    for topic in settings.output.topics:
        for record in _counted(topics.written(topic), topic, progress):
            content = digest((topic.encode(), record.key, record.value, *flat(record.headers)))
            outputs.find(topic, record.key, content, record.partition, record.offset)


def _grown(outputs: Tally, splits: Sequence[Split], partitions: Mapping[str, int]) -> list[Grown]:
    """The topics whose split keys are explained: they got more partitions meanwhile."""
    found = []
    for topic, keys in Counter(split.topic for split in splits).items():
        counts = growth(outputs.traces(topic), partitions[topic])
        if counts is not None:
            found.append(Grown(topic, counts, keys))
    return found


def _differences(lane: Lane, truth: Truth, gone: int) -> Iterable[str]:
    """Yield a line for each counter of the lane record that is not what the source topic makes it."""
    pairs = [(name, getattr(lane, name), getattr(truth, name)) for name in ("read", "written", "dropped")]
    pairs.append(("lost", lane.lost, gone))
    for kind, claimed, true in (
        ("verdict", lane.verdicts, truth.verdicts),
        ("dead letters", lane.dead_letters, truth.dead_letters),
    ):
        pairs += [(f"{kind} {name}", claimed.get(name, 0), true.get(name, 0)) for name in sorted({*claimed, *true})]
    return [f"{lane.name}: {name} is {claimed}, must be {true}" for name, claimed, true in pairs if claimed != true]


def _open(ends: Mapping[tuple[str, int], Ends]) -> list[str]:
    return [
        f"{topic}, partition {partition}: readers stop at offset {stable}, the log ends at {end}"
        for (topic, partition), (stable, end) in sorted(ends.items())
        if stable < end
    ]


def check_still(
    settings: Settings, before: Mapping[tuple[str, int], Ends], after: Mapping[tuple[str, int], Ends]
) -> None:
    """Refuse to judge what somebody still writes."""
    for place, ends in after.items():
        if before.get(place) != ends:
            where = f"{place[0]}, partition {place[1]}"
            msg = f"{where}: written to while it was audited; stop {settings.app.id}, then audit again"
            raise PipelineError(msg)


def _counted(items: Iterable[Item], stage: str, progress: Progress) -> Iterable[Item]:
    number = 0
    for number, item in enumerate(items, start=1):
        if number % PROGRESS_EVERY == 0:
            progress(stage, number)
        yield item
    progress(stage, number)
