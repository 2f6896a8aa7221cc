"""Records of many producers judged at once, by a ledger that forgets meanwhile, are judged as one by one."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes import crowd, forgetting
from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.cost import cost
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.record import Counters, LaneRecord, decode, encode
from pipeline.lanes.stamps import Stamps
from pipeline.lanes.verdicts import VERDICTS, verdicts
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from collections.abc import Iterator

Record = tuple[Identity, int]

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1
EMPTY = LaneRecord("app", "payments", (1, 2), 0, 1, 0, 5, Columns.of([]), Counters(), "1")

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """Send all records the way under test, however few producers there are, and count what comes of it."""
    seen: Counter[str] = Counter()
    judge, forgotten = crowd.judge, forgetting.forgotten

    def judging(*args: Any) -> Any:
        rest = judge(*args)
        seen.update(judged=len(args[3]) - len(rest), left=len(rest))
        return rest

    def forgetting_some(*args: Any) -> Any:
        found = forgotten(*args)
        lost = (found.when < forgetting.NEVER) & (found.lowest < args[0].ids - 1)
        seen.update(forgotten=int(lost.sum()))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.lanes.verdicts.MANY", 0)
        patch.setattr("pipeline.lanes.verdicts.FEW_EACH", 1 << 40)
        patch.setattr("pipeline.lanes.verdicts.RANGES_EACH", 1 << 40)
        patch.setattr(crowd, "ALONE", 20)
        patch.setattr(crowd, "MOST_ALONE", 1 << 40)
        patch.setattr(crowd, "judge", judging)
        patch.setattr(crowd, "forgotten", forgetting_some)
        yield seen


def limits(recent_ids: int, hashes: int, ledger_bytes: int) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


def at_once(ledger: Ledger, records: list[Record]) -> list[str]:
    names = sorted({identity.producer_id for identity, _ in records})
    places = {name: place for place, name in enumerate(names)}
    columns = [(places[i.producer_id], i.epoch, i.txn, i.seq, digest) for i, digest in records]
    producers, epochs, txns, seqs, digests = np.array(columns, np.int64).T
    found = verdicts(ledger, Stamps(names, producers, epochs, txns, seqs, np.ones(len(records), bool)), digests)
    return [VERDICTS[place].value for place in found.tolist()]


def check(
    bounds: Dedup, records: list[Record], size: int, stored_every: int = 2, later: Dedup | None = None
) -> Counter[str]:
    """Judge a stream one by one, and in parts by a ledger that is written and read between some of them.

    In the second half there may be other limits.
    """
    single, many = Ledger(bounds), Ledger(bounds)
    given: Counter[str] = Counter()
    for number, start in enumerate(range(0, len(records), size)):
        if later is not None and start >= len(records) // 2:
            bounds, later = later, None
            single, many = Ledger(bounds, single.columns()), Ledger(bounds, many.columns())
        part = records[start : start + size]
        wanted = [single.judge(*record).value for record in part]
        assert at_once(many, part) == wanted
        assert many.columns() == single.columns()
        assert many.size_bytes == single.size_bytes
        given.update(wanted)
        if number % stored_every == 0:
            many = Ledger(bounds, decode(encode(replace(EMPTY, producers=many.columns()))).producers)
    return given


all_limits = st.builds(limits, st.integers(1, 40), st.integers(0, 40), st.integers(1_024, 9_000))
txns = st.one_of(st.integers(0, 3), st.sampled_from([2**20, 2**31, 2**32, MAX_LONG - 1, MAX_LONG]))
seqs = st.one_of(st.integers(0, 8), st.sampled_from([2**20, MAX_INT - 1, MAX_INT]))
any_record = st.tuples(
    st.builds(Identity, st.sampled_from(["a", "b", "c", "é" * 90]), st.integers(0, 1), txns, seqs), st.integers(-1, 1)
)


@pytest.mark.thorough
@quiet
@given(all_limits, st.lists(any_record, min_size=1, max_size=80), st.integers(1, 80))
def test_any_records_are_judged_alike(bounds: Dedup, records: list[Record], size: int) -> None:
    with watched():
        check(bounds, records, size)


def stream(chance: random.Random, length: int) -> list[Record]:
    """What a lane sees of many producers: ids rise, with holes; some come again, some late, some with another value."""
    producers, in_turn = chance.choice([3, 20, 60, 150]), chance.random() < 0.5
    step, wide = chance.choice([1, 2, 5, 90_000]), chance.choice([1, 1, 3, 200])
    again, late = chance.choice([0.0, 0.02, 0.3]), chance.choice([0.0, 0.002, 0.1])
    restarts = chance.choice([0.0, 0.02])
    recently = chance.choice([5, 100, 1_000])
    numbers, epochs = [0] * producers, [0] * producers
    sent: list[Record] = []
    for place in range(length):
        if sent and chance.random() < again:
            identity, digest = chance.choice(sent[-recently:])
            raised = max(epochs[int(identity.producer_id)] - (chance.random() < 0.1), identity.epoch)
            sent.append((identity._replace(epoch=raised), digest + (chance.random() < 0.1)))
            continue
        producer = place % producers if in_turn else chance.randrange(producers)
        numbers[producer] += chance.randint(1, step)
        number = max(numbers[producer] - (chance.randrange(40 * step) if chance.random() < late else 0), 0)
        epochs[producer] += chance.random() < restarts
        identity = Identity(str(producer), epochs[producer], number // wide, number % wide)
        sent.append((identity, chance.randrange(1_000)))
    return sent


def judged(seed: int) -> tuple[Counter[str], Counter[str]]:
    """Judge a stream under limits that are drawn as well: the verdicts, and what the way under test did."""
    chance = random.Random(seed)  # noqa: S311  a schedule, not a secret
    records = stream(chance, 1_200)
    bounds, later = (
        limits(chance.choice([1, 4, 30, 2_000]), chance.choice([0, 1, 3, 64]), chance.randrange(1_024, 7_000))
        for _ in range(2)
    )
    with watched() as seen:
        return check(bounds, records, chance.choice([7, 100, 400]), chance.choice([1, 2, 1_000]), later), seen


@pytest.mark.thorough
@settings(quiet, max_examples=100)
@given(st.integers(0, 2**32))
def test_long_streams_of_many_producers_are_judged_alike(seed: int) -> None:
    judged(seed)


def test_such_streams_make_a_ledger_forget_while_it_judges_many_at_once_and_have_every_verdict() -> None:
    given, seen = (sum(counts, Counter[str]()) for counts in zip(*map(judged, range(12)), strict=True))
    assert set(given) == set(map(str, VERDICTS))
    assert min(given.values()) > 0
    assert seen["judged"] > 3 * seen["left"] > 0
    assert seen["forgotten"] > 1_000


def test_a_full_ledger_of_many_producers_is_not_asked_for_one_record_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds, names = limits(2_000, 64, 300 * 62 + 2_000), [f"p{number:03}" for number in range(300)]
    records = [(Identity(names[place % 300], 0, place // 300 * 3, 0), place) for place in range(3_000)]
    records[2_500:2_500] = records[2_400:2_500] + records[300:400]
    single, many = Ledger(bounds), Ledger(bounds)
    wanted = [single.judge(*record).value for record in records]
    monkeypatch.delattr(Ledger, "judge")
    found = [verdict for start in range(0, 3_200, 800) for verdict in at_once(many, records[start : start + 800])]
    assert found == wanted
    assert Counter(wanted) == {"fresh": 3_000, "duplicate": 100, "stale": 100}
    assert many.columns() == single.columns()
    assert (many.columns().floor_txns >= 0).all()


def test_who_has_just_had_a_fresh_id_is_forgotten_if_there_is_nobody_else() -> None:
    bounds = limits(2_000, 64, 1_024)
    idle = [(Identity(f"{number:0100}", 0, 0, 0), 0) for number in range(20)]
    busy = [(Identity(f"p{number % 3}", 0, number // 3, 0), number) for number in range(90)]
    with watched() as seen:
        assert set(check(bounds, idle + busy, 30)) == {"fresh"}
    assert seen["forgotten"] == 90 - 3


def test_to_forget_may_take_more_room_than_to_remember() -> None:
    # A range from 100 to 200 is two numbers of a byte; its last id by itself is one of two.
    bounds = limits(2_000, 0, 1_024)
    wide = [(Identity(f"w{number:070}", 0, 0, 100 + seq), 0) for number in range(8) for seq in range(101)]
    more = [(Identity(f"m{number:070}", 0, 0, seq), 0) for number in range(8) for seq in (0, 2)]
    with watched() as seen:
        check(bounds, wide + more, 200)
    assert seen["forgotten"] > 8


def test_one_hole_behind_the_other_does_not_send_all_records_round_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each hole that is filled keeps its producer from being forgotten, and only so the next one is a hole too."""
    ranges, others = 990, [f"q{place:02}" for place in range(20)]
    start = list(range(0, 10 * ranges, 10))
    stored = Columns.of(
        [ProducerState(name, 0, None, [0], [0], [0], [0]) for name in others]
        + [ProducerState("late", 0, None, [0] * ranges, start, start, [0] * 64)]
    )
    rise = [Identity(others[place % 20], 0, 1 + place // 20, 0) for place in range(8 * 920 + 2_100)]
    late = [Identity("late", 0, 0, 10 * hole + 1) for hole in range(920)]
    woven = [item for hole, one in enumerate(late) for item in (*rise[8 * hole : 8 * hole + 8], one)]
    records = [
        (one, place) for place, one in enumerate([Identity("late", 0, 0, 10 * ranges), *woven, *rise[8 * 920 :]])
    ]
    passes: list[int] = []
    judge = crowd._judge  # noqa: SLF001  one pass over all that are left

    def counted(*args: Any) -> Any:
        passes.append(len(args[3]))
        return judge(*args)

    monkeypatch.setattr(crowd, "_judge", counted)
    most = 0
    for room in range(40, 260, 15):
        bounds = limits(2_000, 64, cost(stored) + room)
        single, many = Ledger(bounds, stored), Ledger(bounds, stored)
        wanted = [single.judge(*record).value for record in records]
        passes.clear()
        assert at_once(many, records) == wanted
        assert many.columns() == single.columns()
        most = max(most, len(passes))
    assert 1 < most <= 5
