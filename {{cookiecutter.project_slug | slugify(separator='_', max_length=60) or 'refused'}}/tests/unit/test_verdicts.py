"""Verdicts on many records at once are those of the ledger one by one, and so is the ledger they leave behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes.columns import read
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.stamps import Stamps
from pipeline.lanes.verdicts import FEW, UNKNOWN, VERDICTS, verdicts
from pipeline.sections import Dedup

Record = tuple[Identity, int]

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)


def limits(recent_ids: int, hashes: int, ledger_bytes: int) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


def at_once(ledger: Ledger, records: list[Record]) -> list[str]:
    """Judge records at once; a record without a sound identity stands between each two."""
    names = sorted({identity.producer_id for identity, _ in records})
    columns = [
        (names.index(identity.producer_id), identity.epoch, identity.txn, identity.seq, digest)
        for identity, digest in records
        for identity, digest in ((identity, digest), (Identity(names[0], -1, -1, -1), 0))
    ]
    producers, epochs, txns, seqs, digests = np.array(columns, np.int64).reshape(-1, 5).T
    sound = np.arange(len(columns)) % 2 == 0
    found = verdicts(ledger, Stamps(names, producers, epochs, txns, seqs, sound), digests)
    assert (found[~sound] == UNKNOWN).all()
    return [VERDICTS[place].value for place in found[sound].tolist()]


def check(bounds: Dedup, records: list[Record], size: int) -> None:
    """Judge a stream one by one, and in batches by a ledger that is stored and restored between them."""
    single, many = Ledger(bounds), Ledger(bounds)
    for start in range(0, len(records), size):
        batch = records[start : start + size]
        assert at_once(many, batch) == [single.judge(*record).value for record in batch]
        assert many.states() == single.states()
        assert many.size_bytes == single.size_bytes
        many = Ledger(bounds, read(many.columns().written()))
        assert many.size_bytes == single.size_bytes


# So many records of a producer are judged one after the other, and more of them in runs.
few = st.sampled_from([0, 12, FEW])
all_limits = st.builds(limits, st.integers(1, 40), st.integers(0, 40), st.integers(1_024, 9_000))
txns = st.one_of(st.integers(0, 3), st.sampled_from([2**20, 2**31, 2**32, MAX_LONG - 1, MAX_LONG]))
seqs = st.one_of(st.integers(0, 8), st.sampled_from([2**20, MAX_INT - 1, MAX_INT]))
any_record = st.tuples(
    st.builds(Identity, st.sampled_from(["a", "b", "é" * 90]), st.integers(0, 1), txns, seqs), st.integers(-1, 1)
)


@pytest.mark.thorough
@quiet
@given(all_limits, st.lists(any_record, min_size=1, max_size=80), st.integers(1, 80), few)
def test_any_records_are_judged_alike(bounds: Dedup, records: list[Record], size: int, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.lanes.verdicts.FEW", few)
        check(bounds, records, size)


@pytest.mark.thorough
@settings(quiet, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(0, 90), st.integers(1_024, 40_000), st.integers(20, 900))
def test_long_streams_that_mostly_rise_are_judged_alike(
    seed: int, recent_ids: int, hashes: int, ledger_bytes: int, size: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  a schedule, not a secret
    falls, wide, step = chance.choice([0.0, 0.02, 0.2]), chance.choice([1, 7, 400]), chance.choice([1, 3])
    producers = chance.choice([1, 3, 40])
    stream: list[Record] = []
    for place in range(1_500):
        back = chance.randrange(300) if chance.random() < falls else 0
        number = max(place * step - back, 0)
        name = f"p{number % producers}"
        epoch = place // 700 if chance.random() > 0.01 else 0
        digest = number + (chance.random() < 0.01)
        stream.append((Identity(name, epoch, number // wide, number % wide), digest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.lanes.verdicts.FEW", chance.choice([0, 12, FEW]))
        check(limits(recent_ids, hashes, ledger_bytes), stream, size)


def test_of_ids_too_far_apart_for_one_number_none_is_taken_for_another() -> None:
    places = [*((0, seq) for seq in range(60)), (2**32, 0), (1, 0), (2**32, 1), (1, 0), (MAX_LONG, MAX_INT), (2**62, 0)]
    records = [(Identity("p", 0, *place), 0) for place in places]
    check(limits(1_000, 64, 500_000), records, len(records))
    found = at_once(Ledger(limits(1_000, 64, 500_000)), records)
    assert [place for place, verdict in zip(places, found, strict=True) if verdict != "fresh"] == [(1, 0)]


def test_a_producer_that_gets_many_ids_at_once_is_forgotten_like_any_other() -> None:
    bounds = limits(recent_ids=2_000, hashes=0, ledger_bytes=1_100)
    one_by_one, many = Ledger(bounds), Ledger(bounds)
    first, more = [(Identity("x", 0, 1, 0), 0)], [(Identity("x", 0, txn, 0), 0) for txn in (3, 5, 7, 9)]
    for batch in (first, more):
        assert at_once(many, batch) == [one_by_one.judge(*record).value for record in batch]
    for number in range(40):  # more than there is room for
        for ledger in (one_by_one, many):
            ledger.judge(Identity(f"{number:0100}", 0, 1, 0), 0)
    assert many.states() == one_by_one.states()
    assert len(many.states()[0].txns) == 1
