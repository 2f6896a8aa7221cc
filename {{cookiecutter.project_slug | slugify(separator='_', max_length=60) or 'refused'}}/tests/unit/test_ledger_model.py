"""The ledger against a brute-force model that recomputes everything from plain sets at every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes.columns import ProducerState
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Id = tuple[int, int]
Record = tuple[Identity, int]

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1


def limits(recent_ids: int = 10_000, hashes: int = 64, ledger_bytes: int = 524_288) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


@dataclass
class ModelProducer:
    epoch: int
    recent: dict[Id, int] = field(default_factory=dict)
    trimmed: set[Id] = field(default_factory=set)

    def ranges(self) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for txn, seq in sorted(self.recent):
            if found and found[-1][0] == txn and found[-1][2] + 1 == seq:
                found[-1] = (txn, found[-1][1], seq)
            else:
                found.append((txn, seq, seq))
        return found

    def bytes(self) -> int:
        """Of each column of the ranges: how many of its numbers may take one byte, two, up to nine, by their sum."""
        if not self.recent:
            return 0
        ranges, highest = self.ranges(), dict(sorted(self.recent))
        inner = len(self.recent) - len(ranges)
        sums = (ranges[-1][0] - ranges[0][0], sum(highest.values()) - inner, inner)
        return sum(min(len(ranges), total // 128**more) if more else len(ranges) for total in sums for more in range(9))

    def trim(self, keep: int) -> None:
        for lowest in sorted(self.recent)[:-keep]:
            del self.recent[lowest]
            self.trimmed.add(lowest)


class Model:
    """The rules as they are written down, over sets, with no state that is kept up to date step by step."""

    def __init__(self, limits: Dedup) -> None:
        self.limits = limits
        self.producers: dict[str, ModelProducer] = {}
        self.order: list[str] = []

    def hashed(self, producer: ModelProducer) -> list[Id]:
        newest_first = sorted(producer.recent, reverse=True)
        return newest_first[: self.limits.hashes]

    def cost(self) -> int:
        return sum(
            48 + len(name.encode()) + producer.bytes() + 8 * len(self.hashed(producer))
            for name, producer in self.producers.items()
        )

    def judge(self, identity: Identity, digest: int) -> str:
        producer = self.producers.setdefault(identity.producer_id, ModelProducer(identity.epoch))
        if identity.epoch < producer.epoch:
            return "old-epoch"
        producer.epoch = identity.epoch
        place = (identity.txn, identity.seq)
        if place in producer.recent:
            differs = place in self.hashed(producer) and producer.recent[place] != digest
            return "conflict" if differs else "duplicate"
        if producer.trimmed and place <= max(producer.trimmed):
            return "stale"
        producer.recent[place] = digest
        self.order = [name for name in self.order if name != identity.producer_id] + [identity.producer_id]
        producer.trim(self.limits.recent_ids)
        while self.cost() > self.limits.ledger_bytes:
            wide = [name for name in self.order if len(self.producers[name].recent) > 1]
            if not wide:
                break
            self.producers[wide[0]].trim(1)
        return "fresh"

    def states(self) -> list[ProducerState]:
        return [self.state(name, self.producers[name]) for name in self.order]

    def state(self, name: str, producer: ModelProducer) -> ProducerState:
        ranges = producer.ranges()
        return ProducerState(
            producer_id=name,
            epoch=producer.epoch,
            floor=max(producer.trimmed, default=None),
            txns=[txn for txn, _, _ in ranges],
            firsts=[first for _, first, _ in ranges],
            lasts=[last for _, _, last in ranges],
            digests=[producer.recent[place] for place in reversed(self.hashed(producer))],
        )


def judge_all(ledger: Ledger, records: Iterable[Record]) -> list[str]:
    return [ledger.judge(identity, digest).value for identity, digest in records]


def check_against_model(bounds: Dedup, records: Sequence[Record]) -> list[str]:
    """Judge with a ledger that stays, one that is stored and restored at every record, and the model."""
    ledger, stored, model, verdicts = Ledger(bounds), Ledger(bounds), Model(bounds), []
    for identity, digest in records:
        stored = Ledger(bounds, stored.states())
        verdicts.append(model.judge(identity, digest))
        assert ledger.judge(identity, digest).value == stored.judge(identity, digest).value == verdicts[-1]
        assert ledger.states() == stored.states() == model.states()
        assert ledger.size_bytes == stored.size_bytes == model.cost()
    return verdicts


def check_fresh_at_most_once(records: Sequence[Record], verdicts: Sequence[str]) -> None:
    accepted = [
        (i.producer_id, i.txn, i.seq) for (i, _), verdict in zip(records, verdicts, strict=True) if verdict == "fresh"
    ]
    assert len(accepted) == len(set(accepted))


# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)

all_limits = st.builds(limits, st.integers(1, 40), st.integers(0, 40), st.integers(1_024, 4_096))
# A few neighbours, so that ids meet, and the edges of both types.
txns = st.one_of(st.integers(0, 3), st.sampled_from([2**20, 2**31, MAX_LONG - 1, MAX_LONG]))
seqs = st.one_of(st.integers(0, 8), st.sampled_from([2**20, MAX_INT - 1, MAX_INT]))
records = st.tuples(
    st.builds(Identity, st.sampled_from(["a", "b", "é" * 90, "d" * 200]), st.integers(0, 2), txns, seqs),
    st.integers(-1, 1),
)
# Short ones come up by shrinking; evictions need some length.
streams = st.integers(0, 60).flatmap(lambda length: st.lists(records, min_size=length, max_size=80))


@pytest.mark.thorough
@quiet
@given(all_limits, streams)
def test_verdicts_and_states_are_those_of_the_model_on_any_records(bounds: Dedup, stream: list[Record]) -> None:
    verdicts = check_against_model(bounds, stream)
    check_fresh_at_most_once(stream, verdicts)


@pytest.mark.thorough
@quiet
@given(all_limits, streams, st.sets(st.integers(0, 80)))
def test_storing_and_restoring_anywhere_changes_no_verdict_and_no_state(
    bounds: Dedup, stream: list[Record], cuts: set[int]
) -> None:
    whole, parts = Ledger(bounds), Ledger(bounds)
    for place, (identity, digest) in enumerate(stream):
        if place in cuts:
            parts = Ledger(bounds, parts.states())
            assert parts.size_bytes == whole.size_bytes
        assert parts.judge(identity, digest) == whole.judge(identity, digest)
    assert parts.states() == whole.states()
    assert parts.size_bytes == whole.size_bytes


@st.composite
def upstreams(draw: st.DrawFn) -> tuple[list[Record], set[tuple[str, Id]]]:
    """Draw what a lane sees of good upstream producers that crash, re-send and leave zombies behind.

    Transactions are numbered without gaps, and the lane holds a part of each (holes). A crash raises the epoch. Before
    it, a transaction may have been aborted: the lane saw nothing of it, and it comes under its number. After
    it, part of what was sent last may come again, while a zombie of the epoch before still sends.
    Returns the stream, and the ids that must come out.
    """
    lanes: list[list[Record]] = []
    wanted: set[tuple[str, Id]] = set()
    for name in draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1)):
        lane: list[Record] = []
        sent: list[Record] = []
        epoch = 0
        for txn in range(draw(st.integers(1, 6))):
            epoch += draw(st.integers(0, 1))
            seqs = sorted(draw(st.sets(st.integers(0, 9), max_size=6)))
            new = [(Identity(name, epoch, txn, seq), txn * 100 + seq) for seq in seqs]
            sent += new
            lane += new
            crashed = draw(st.booleans())
            if sent and crashed:
                epoch += 1
                again = draw(st.lists(st.sampled_from(sent[-12:]), unique=True, min_size=1))
                lane += [(identity._replace(epoch=epoch), digest) for identity, digest in sorted(again)]
                lane += [
                    (Identity(name, epoch - 1, txn, seq), 0) for seq in draw(st.sets(st.integers(0, 12), max_size=3))
                ]
        wanted |= {(name, (identity.txn, identity.seq)) for identity, _ in sent}
        lanes.append(lane)
    order = draw(st.permutations([number for number, lane in enumerate(lanes) for _ in lane]))
    iterators = [iter(lane) for lane in lanes]
    return [next(iterators[number]) for number in order], wanted


@pytest.mark.thorough
@quiet
@given(upstreams())
def test_every_id_of_crashing_upstreams_is_fresh_exactly_once(case: tuple[list[Record], set[tuple[str, Id]]]) -> None:
    stream, wanted = case
    verdicts = judge_all(Ledger(limits()), stream)
    fresh = [
        (i.producer_id, (i.txn, i.seq)) for (i, _), verdict in zip(stream, verdicts, strict=True) if verdict == "fresh"
    ]
    assert len(fresh) == len(set(fresh))
    assert set(fresh) == wanted
    assert set(verdicts) <= {"fresh", "duplicate", "old-epoch"}


@pytest.mark.thorough
@quiet
@given(all_limits, upstreams())
def test_crashing_upstreams_are_judged_as_by_the_model_under_any_limits(
    bounds: Dedup, case: tuple[list[Record], set[tuple[str, Id]]]
) -> None:
    check_against_model(bounds, case[0])


@pytest.mark.thorough
@settings(quiet, max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 90), st.integers(1_024, 12_000))
def test_long_streams_with_reordering_are_judged_as_by_the_model(
    seed: int, recent_ids: int, hashes: int, ledger_bytes: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    stream: list[Record] = []
    for place in range(1_200):
        number = max(0, place * 3 - chance.choice([0, 0, 0, 1, 2, 6, 30, 600]))
        identity = Identity(chance.choice("ab"), 0, number // 400, number % 400)
        stream.append((identity, number + (chance.random() < 0.01)))
    bounds = limits(recent_ids, hashes, ledger_bytes)
    ledger, model = Ledger(bounds), Model(bounds)
    for place, (identity, digest) in enumerate(stream):
        assert ledger.judge(identity, digest).value == model.judge(identity, digest)
        if place % 100 == 0:
            assert ledger.states() == model.states()
            assert ledger.size_bytes == model.cost()
    assert ledger.states() == model.states()
