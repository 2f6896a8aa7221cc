"""Each rule of the ledger, by example; `test_ledger_model.py` holds them all against a model."""

from __future__ import annotations

import pytest

from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.recent import Verdict
from pipeline.sections import Dedup

Id = tuple[int, int]

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1


def limits(recent_ids: int = 10_000, hashes: int = 64, ledger_bytes: int = 524_288) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


def ask(ledger: Ledger, place: Id, *, epoch: int = 0, digest: int = 0, name: str = "p") -> str:
    return ledger.judge(Identity(name, epoch, *place), digest).value


def test_the_same_id_twice_is_a_duplicate_also_across_a_raised_epoch() -> None:
    ledger = Ledger(limits())
    assert ask(ledger, (0, 0), epoch=0) == "fresh"
    assert ask(ledger, (0, 0), epoch=0) == "duplicate"
    assert ask(ledger, (0, 0), epoch=1) == "duplicate"
    assert ask(ledger, (1, 0), epoch=1) == "fresh"


def test_an_epoch_raised_by_a_duplicate_fences_the_older_one() -> None:
    ledger = Ledger(limits())
    ask(ledger, (5, 0), epoch=0)
    assert ask(ledger, (5, 0), epoch=3) == "duplicate"
    assert ask(ledger, (6, 0), epoch=2) == "old-epoch"
    assert ask(ledger, (6, 0), epoch=3) == "fresh"


def test_a_record_of_an_old_epoch_leaves_no_trace() -> None:
    ledger = Ledger(limits())
    ask(ledger, (0, 0), epoch=1)
    before = ledger.states()
    assert ask(ledger, (9, 9), epoch=0) == "old-epoch"
    assert ledger.states() == before


def test_holes_are_fresh_when_they_fill_later_in_any_order() -> None:
    ledger = Ledger(limits())
    places = [(0, 10), (2, 0), (0, 4), (0, 5), (0, 3), (1, 0), (0, 9), (0, 0), (1, 2), (1, 1)]
    assert [ask(ledger, place) for place in places] == ["fresh"] * len(places)
    assert [ask(ledger, place) for place in places] == ["duplicate"] * len(places)
    (state,) = ledger.states()
    assert (state.txns, state.firsts, state.lasts) == ([0, 0, 0, 1, 2], [0, 3, 9, 0, 0], [0, 5, 10, 2, 0])


def test_ids_are_never_packed_so_the_end_of_a_transaction_is_not_the_start_of_the_next() -> None:
    ledger = Ledger(limits())
    places = [(0, 2**20), (1, 0), (0, MAX_INT), (2**31, 0), (MAX_LONG, MAX_INT), (MAX_LONG - 1, MAX_INT), (MAX_LONG, 0)]
    assert [ask(ledger, place) for place in places] == ["fresh"] * len(places)


def test_an_aborted_transaction_sent_again_under_its_number_is_fresh() -> None:
    # The lane reads committed records only, so of the aborted attempt it sees nothing.
    ledger = Ledger(limits(recent_ids=4))
    assert [ask(ledger, (0, seq)) for seq in range(4)] == ["fresh"] * 4
    assert [ask(ledger, (1, seq), epoch=1) for seq in range(4)] == ["fresh"] * 4


def test_an_aborted_number_sent_after_a_larger_later_one_is_stale() -> None:
    ledger = Ledger(limits(recent_ids=4))
    ask(ledger, (6, 0))
    assert [ask(ledger, (8, seq)) for seq in range(5)] == ["fresh"] * 5
    assert ask(ledger, (7, 0)) == "stale"
    assert ask(ledger, (6, 0)) == "stale"


def test_a_change_of_content_is_a_conflict_while_the_hash_is_kept_and_a_duplicate_after() -> None:
    ledger = Ledger(limits(hashes=2))
    for seq in range(3):
        ask(ledger, (0, seq), digest=seq)
    assert ask(ledger, (0, 2), digest=77) == "conflict"
    assert ask(ledger, (0, 1), digest=77) == "conflict"
    assert ask(ledger, (0, 0), digest=77) == "duplicate"
    assert ask(ledger, (0, 2), digest=2) == "duplicate"


def test_the_first_content_stands_after_a_conflict() -> None:
    ledger = Ledger(limits())
    ask(ledger, (0, 0), digest=-(2**63))
    assert ask(ledger, (0, 0), digest=2**63 - 1) == "conflict"
    assert ask(ledger, (0, 0), digest=2**63 - 1) == "conflict"
    assert ask(ledger, (0, 0), digest=-(2**63)) == "duplicate"


def test_trimming_by_ids_drops_the_lowest_id_not_the_oldest_arrival() -> None:
    ledger = Ledger(limits(recent_ids=2))
    for seq in (5, 3, 9):
        assert ask(ledger, (0, seq)) == "fresh"
    assert ask(ledger, (0, 3)) == "stale"
    assert ask(ledger, (0, 4)) == "fresh"
    assert ask(ledger, (0, 4)) == "stale"
    assert ask(ledger, (0, 5)) == "duplicate"
    assert ledger.states()[0].floor == (0, 4)


def test_eviction_by_bytes_takes_the_producer_without_fresh_ids_for_longest_and_keeps_its_highest() -> None:
    ledger = Ledger(limits(hashes=0, ledger_bytes=1_024))
    for name in "abcde":
        for seq in (0, 2, 4):
            ask(ledger, (0, seq), name=name)
    ask(ledger, (0, 6), name="a")
    ask(ledger, (0, 4), name="b")  # a duplicate does not make it newer
    before = ledger.size_bytes
    while ledger.size_bytes >= before:
        before = ledger.size_bytes
        ask(ledger, (1, before), name="c")
    floors = {state.producer_id: (state.floor, len(state.txns)) for state in ledger.states()}
    assert floors["b"] == ((0, 2), 1)
    assert [floors[name][0] for name in "acde"] == [None] * 4
    assert [state.producer_id for state in ledger.states()] == ["b", "d", "e", "a", "c"]
    assert ask(ledger, (0, 4), name="b") == "duplicate"
    assert ask(ledger, (0, 3), name="b") == "fresh"
    assert ask(ledger, (0, 2), name="b") == "stale"


def test_one_large_newcomer_evicts_as_many_producers_as_it_takes() -> None:
    ledger = Ledger(limits(hashes=0, ledger_bytes=1_024))
    for name in "abcde":
        for seq in range(0, 100 if name <= "c" else 50, 2):
            ask(ledger, (0, seq), name=name)
    assert ledger.size_bytes == 5 * 49 + 3 * 200
    ask(ledger, (0, 0), name="n" * 200)
    assert [(state.producer_id[0], len(state.txns)) for state in ledger.states()] == [
        *(("a", 1), ("b", 50), ("c", 50), ("d", 25), ("e", 25), ("n", 1)),
    ]
    ask(ledger, (0, 0), name="m" * 200)
    assert [(state.producer_id[0], len(state.txns)) for state in ledger.states()] == [
        *(("a", 1), ("b", 1), ("c", 1), ("d", 25), ("e", 25), ("n", 1), ("m", 1)),
    ]


def test_a_ledger_of_more_producers_than_its_bytes_hold_still_knows_the_highest_of_each() -> None:
    ledger = Ledger(limits(ledger_bytes=1_024))
    for txn in range(3):
        for number in range(50):
            assert ask(ledger, (txn, 0), name=f"p{number}") == "fresh"
    assert [ask(ledger, (2, 0), name=f"p{number}") for number in range(50)] == ["duplicate"] * 50
    assert [ask(ledger, (1, 0), name=f"p{number}") for number in range(50)] == ["stale"] * 50
    assert ledger.size_bytes == 50 * (48 + 3 + 8) + 10 * 2 + 40 * 3


@pytest.mark.parametrize(("before", "after"), [(64, 2), (64, 0), (2, 64), (0, 64)])
def test_other_limits_after_a_restart_lose_no_id(before: int, after: int) -> None:
    ledger = Ledger(limits(hashes=before))
    for seq in range(0, 40, 2):
        ask(ledger, (0, seq), digest=seq)
    ledger = Ledger(limits(hashes=after, recent_ids=30), ledger.states())
    assert [ask(ledger, (0, seq), digest=seq) for seq in range(40)] == ["duplicate", "fresh"] * 20
    assert ask(ledger, (0, 39), digest=77) == ("conflict" if after else "duplicate")
    assert ask(ledger, (0, 38), digest=77) == ("conflict" if before and after else "duplicate")
    assert ask(ledger, (0, 9)) == "stale"


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_a_hundred_thousand_producers_over_the_limit_are_judged_without_a_scan() -> None:
    # A scan of all producers at each record would be 20 milliard steps.
    ledger = Ledger(limits(ledger_bytes=1_024))
    names = [f"p{number}" for number in range(100_000)]
    for txn in range(2):
        assert {ask(ledger, (txn, 0), name=name) for name in names} == {"fresh"}
    assert {ask(ledger, (0, 0), name=name) for name in names[:1_000]} == {"stale"}


def test_verdict_values_are_the_words_of_headers_and_counters() -> None:
    assert [verdict.value for verdict in Verdict] == ["fresh", "duplicate", "stale", "old-epoch", "conflict"]
