"""The workload is what it says: deterministic, with each fault in it, and each fault doing what it is for."""

from __future__ import annotations

import json
from collections import Counter
from zlib import crc32

import pytest
from tests.support.reference import identity_of, outputs_of, settings_for

from pipeline.lanes.ledger import Ledger
from pipeline.local.malformed import UNDECODABLE, broken_stamps, stamp
from pipeline.local.payments import ABORTED_PREFIX, Event, Kind, plan
from pipeline.sections import Dedup

VERDICTS = {
    Kind.PAYMENT: "fresh",
    Kind.DUPLICATE: "duplicate",
    Kind.CONFLICT: "conflict",
    Kind.OLD_EPOCH: "old-epoch",
    Kind.UNDECODABLE: "fresh",
}


def committed(count: int, seed: int = 1) -> list[Event]:
    """Return all records that a reader sees."""
    return [event for batch in plan(count, seed=seed) if batch.commit for event in batch.events]


def numbers(event: Event) -> tuple[bytes | None, ...]:
    """Return producer, transaction and place in it, as stamped."""
    headers = dict(event.headers)
    return headers["producer-id"], headers["txn-id"], headers["seq"]


def test_one_seed_makes_one_workload() -> None:
    assert list(plan(2_000, seed=3)) == list(plan(2_000, seed=3))


def test_two_seeds_share_no_producer() -> None:
    names = [{dict(event.headers).get("producer-id") for event in committed(500, seed)} for seed in (1, 2)]
    wrong = {dict(headers).get("producer-id") for headers in broken_stamps(stamp(b"p", 0, 0, 0))}
    assert (names[0] & names[1]) - wrong == set()


@pytest.mark.parametrize("count", [1, 10, 300, 5_000])
def test_exactly_the_asked_number_of_payments_is_sent_first(count: int) -> None:
    kinds = Counter(event.kind for event in committed(count))
    assert kinds[Kind.PAYMENT] == count


@pytest.mark.thorough
@pytest.mark.parametrize("count", [500, 5_000, 50_000])
def test_every_kind_is_there_and_at_least_a_fiftieth_are_duplicates(count: int) -> None:
    kinds = Counter(event.kind for batch in plan(count) for event in batch.events)
    assert set(kinds) == set(Kind)
    assert kinds[Kind.DUPLICATE] >= 0.02 * (kinds.total() - kinds[Kind.ABORTED])
    assert kinds[Kind.CONFLICT] + kinds[Kind.OLD_EPOCH] < 0.02 * count


@pytest.mark.thorough
@pytest.mark.parametrize("partitions", [1, 4, 7])
@pytest.mark.parametrize("count", [500, 20_000])
def test_each_record_gets_the_verdict_that_it_is_for_however_many_partitions_there_are(
    partitions: int, count: int
) -> None:
    limits = Dedup.model_validate({"recent_ids": 100_000, "ledger_bytes": 64_000_000})
    ledgers = [Ledger(limits) for _ in range(partitions)]
    for event in committed(count):
        found = identity_of(event.headers)
        assert (found is None) == (event.kind is Kind.IDENTITY)
        if found is not None:
            ledger = ledgers[crc32(event.key or b"") % partitions]
            assert ledger.judge(found, crc32(event.value or b"")).value == VERDICTS[event.kind], event


def test_only_malformed_records_lack_a_key() -> None:
    assert {event.kind for event in committed(2_000) if event.key is None} == {Kind.IDENTITY}


def test_rows_of_aborted_transactions_are_marked_and_their_numbers_are_sent_again() -> None:
    aborted = [event for batch in plan(2_000) if not batch.commit for event in batch.events]
    visible = committed(2_000)
    assert {event.kind for event in aborted} == {Kind.ABORTED}
    assert all(b'"id":"' + ABORTED_PREFIX in (event.value or b"") for event in aborted)
    assert not any(ABORTED_PREFIX in (event.value or b"") for event in visible)
    assert {numbers(event) for event in aborted} <= {numbers(event) for event in visible if event.kind is Kind.PAYMENT}


def test_a_restarted_producer_raises_its_epoch_and_goes_on_with_its_numbers() -> None:
    epochs: dict[str, set[int]] = {}
    for event in committed(20_000):
        found = identity_of(event.headers)
        if event.kind is Kind.PAYMENT and found is not None:
            epochs.setdefault(found.producer_id, set()).add(found.epoch)
    assert len(epochs) == 8
    assert any(len(seen) > 1 for seen in epochs.values())


def test_payments_decode_and_some_are_probes_and_some_make_two_outputs() -> None:
    settings = settings_for()
    sizes: Counter[int] = Counter()
    for event in committed(2_000):
        if event.kind is Kind.PAYMENT:
            made = outputs_of(settings, event.value)
            assert made is not None
            assert json.loads(event.value or b"")["account"].encode() == event.key
            sizes[len(made)] += 1
    assert set(sizes) == {0, 1, 2}


def test_no_undecodable_value_is_a_payment() -> None:
    settings = settings_for()
    assert [outputs_of(settings, value) for value in UNDECODABLE] == ["decode"] * len(UNDECODABLE)


def test_no_broken_stamp_identifies_anything() -> None:
    good = stamp(b"p", 1, 2, 3)
    assert identity_of(good) is not None
    assert [identity_of(headers) for headers in broken_stamps(good)] == [None] * 14
