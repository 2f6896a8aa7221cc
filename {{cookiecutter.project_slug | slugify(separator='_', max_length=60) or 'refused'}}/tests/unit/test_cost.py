"""The cost of a ledger: never less than its bytes, and close to them where ids are ordinary."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.lanes.columns import Columns
from pipeline.lanes.cost import cost
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.recent import Verdict
from pipeline.lanes.record import Counters, LaneRecord, encode
from pipeline.lanes.stamps import Stamps
from pipeline.lanes.verdicts import VERDICTS, verdicts
from pipeline.sections import Dedup

if TYPE_CHECKING:
    from collections.abc import Sequence

Id = tuple[int, int]

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1
FRESH, DUPLICATE = VERDICTS.index(Verdict.FRESH), VERDICTS.index(Verdict.DUPLICATE)
EMPTY = LaneRecord("app", "payments", (1, 2), 0, 1, 0, 5, Columns.of([]), Counters(), "1")

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)


def limits(recent_ids: int = 2_000, hashes: int = 64, ledger_bytes: int = 64_000_000) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


def taken(columns: Columns) -> int:
    """The bytes of a lane record that a ledger takes."""
    return len(encode(replace(EMPTY, producers=columns))) - len(encode(EMPTY))


def check(ledger: Ledger) -> None:
    columns = ledger.columns()
    assert ledger.size_bytes == cost(columns) == cost(Columns.of(ledger.states()))
    assert ledger.size_bytes >= taken(columns)


# Numbers at which a difference takes one byte more, and any others.
edges = [128**power + near for power in range(9) for near in (-1, 0, 1)]
steps = st.one_of(st.sampled_from(edges), st.integers(0, 300), st.integers(0, MAX_LONG))
ids = st.lists(st.tuples(steps, steps), min_size=1, max_size=60)


def rising(differences: Sequence[Id]) -> list[Id]:
    """Ids with these differences: within a transaction, where that of transactions is 0 and seqs are left."""
    found, txn, seq = [], 0, 0
    for txns, seqs in differences:
        seq = seq + seqs if txns == 0 and seq + seqs <= MAX_INT else seqs % (MAX_INT + 1)
        txn = (txn + txns) % (MAX_LONG + 1)
        found.append((txn, seq))
    return found


@pytest.mark.thorough
@quiet
@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), ids), max_size=4),
    st.integers(1, 80),
    st.integers(0, 80),
    st.sampled_from([1, -1]),
)
def test_no_ledger_takes_more_bytes_than_it_costs(
    producers: list[tuple[str, list[Id]]], recent_ids: int, hashes: int, order: int
) -> None:
    ledger = Ledger(limits(recent_ids, hashes))
    for name, differences in producers:
        for place in rising(differences)[::order]:
            ledger.judge(Identity(name, MAX_LONG, *place), -1)
        check(ledger)


@pytest.mark.parametrize(("count", "producers"), [(1, 1), (1, 130), (21, 70), (64, 2), (128, 1), (1_100, 1)])
@pytest.mark.parametrize("power", [0, 1, 4, 7])
def test_the_widest_numbers_take_no_more_than_they_cost(power: int, count: int, producers: int) -> None:
    """Of each length of differences in turn, so that the sums allow for hardly a byte too many."""
    for hashes, seq in product((0, 8, 1_500), (128**2, MAX_INT)):
        ledger = Ledger(limits(count, hashes))
        for number in range(producers):
            name = f"{number:03}".ljust(200, "p")
            for place in range(count + 1):
                ledger.judge(Identity(name, MAX_LONG, MAX_LONG - (count - place) * 128**power, seq), 0)
        check(ledger)


@pytest.mark.parametrize("wide", [1, 3, 100])
def test_ids_as_producers_number_them_cost_little_more_than_they_take(wide: int) -> None:
    ledger = Ledger(limits())
    for number in range(5_000):
        ledger.judge(Identity("till-1", 3, 1_000_000 + number // wide, number % wide), number)
    check(ledger)
    assert ledger.size_bytes < 1.01 * taken(ledger.columns()) + 48


def stamped(records: Sequence[Identity]) -> Stamps:
    names = sorted({record.producer_id for record in records})
    places = {name: place for place, name in enumerate(names)}
    numbers = [(places[name], epoch, txn, seq) for name, epoch, txn, seq in records]
    producers, epochs, txns, seqs = np.array(numbers, np.int64).T
    return Stamps(names, producers, epochs, txns, seqs, np.ones(len(records), bool))


def at_once(ledger: Ledger, records: Sequence[Identity]) -> list[str]:
    found = verdicts(ledger, stamped(records), np.zeros(len(records), np.int64))
    return [VERDICTS[place].value for place in found.tolist()]


def test_a_hundred_producers_of_single_record_transactions_fit_and_no_repeat_is_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger(Dedup.model_validate({}))
    # A ledger with room left is never asked for one record after the other.
    monkeypatch.delattr(Ledger, "judge")
    txns, tills = np.divmod(np.arange(400_000), 100)
    none, sound = np.zeros(len(txns), np.int64), np.ones(len(txns), bool)
    sent = Stamps([f"till-{till}" for till in range(100)], tills, none, txns, none, sound)
    for start in range(0, 400_000, 50_000):
        chunk = sent.cut(start, start + 50_000)
        assert (verdicts(ledger, chunk, none[:50_000]) == FRESH).all()
    check(ledger)
    assert (verdicts(ledger, sent.cut(200_000, 400_000), none[:200_000]) == DUPLICATE).all()


FEW_PLACES = [Identity("a", 0, txn, 0) for txn in range(300)]


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([Identity(f"new-{number}", 0, 0, 0) for number in range(30)], id="new producers"),
        pytest.param([Identity("b", 0, txn, 2**20) for txn in range(200)], id="far places"),
        pytest.param([Identity("b", 0, txn * 2**20, 0) for txn in range(200)], id="far transactions"),
        pytest.param([Identity("a", 0, 300 + txn, 0) for txn in range(60)] + [Identity("b", 0, 0, 0)], id="more ids"),
    ],
)
def test_a_full_ledger_forgets_at_the_record_that_lacks_one_byte(batch: list[Identity]) -> None:
    wide = Ledger(limits(hashes=0))
    for record in FEW_PLACES + batch:
        wide.judge(record, 0)
    bounds = limits(hashes=0, ledger_bytes=max(wide.size_bytes - 1, 1_024))
    single, many = Ledger(bounds), Ledger(bounds)
    for records in (FEW_PLACES, batch):
        assert at_once(many, records) == [single.judge(record, 0).value for record in records]
    assert many.states() == single.states() != wide.states()


@pytest.mark.thorough
@settings(quiet, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 20))
@example(0, 40, 0)
def test_a_ledger_that_lacks_one_byte_at_any_record_forgets_there_also_when_many_are_judged_at_once(
    seed: int, recent_ids: int, hashes: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  a schedule, not a secret
    gaps, falls = chance.choice([1, 3, 200, 2**40]), chance.choice([0, 5, 3_000])
    names = [name.ljust(150) for name in ("a", "b", "c", "d", "e", "f")[: chance.choice([1, 2, 6])]]
    records = [
        Identity(chance.choice(names), 0, chance.randrange(gaps) * place // 9, max(place - chance.randint(0, falls), 0))
        for place in range(400)
    ]
    wide, sizes = Ledger(limits(recent_ids, hashes)), [0]
    for record in records:
        wide.judge(record, 0)
        sizes.append(wide.size_bytes)
    peaks = [before for before, after in pairwise(sizes) if after < before] + [max(sizes)]
    for peak in {peak for peak in peaks if peak > 1_024}:
        bounds = limits(recent_ids, hashes, peak - 1)
        single, many = Ledger(bounds), Ledger(bounds)
        for start in range(0, len(records), 80):
            batch = records[start : start + 80]
            assert at_once(many, batch) == [single.judge(record, 0).value for record in batch]
            assert many.states() == single.states()
            assert many.size_bytes == single.size_bytes
