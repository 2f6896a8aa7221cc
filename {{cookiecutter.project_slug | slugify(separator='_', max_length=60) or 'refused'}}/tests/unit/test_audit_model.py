"""The audit's own rules: on cases written by hand, and against the product's ledger and identity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lanes import identity
from pipeline.lanes.ledger import Ledger
from pipeline.observe.audit.model import Model, Stamp, read_stamp
from pipeline.observe.audit.records import digest
from pipeline.observe.audit.tally import Tally
from pipeline.sections import Dedup
from pipeline.sections import Identity as HeaderNames

NAMES = HeaderNames()
FRESH, DUPLICATE, STALE, OLD_EPOCH, CONFLICT = "fresh", "duplicate", "stale", "old-epoch", "conflict"
Step = tuple[int, int, int, str, str]


def dedup(recent_ids: int = 10_000, hashes: int = 64, ledger_bytes: int = 524_288) -> Dedup:
    return Dedup.model_validate({"recent_ids": recent_ids, "hashes": hashes, "ledger_bytes": ledger_bytes})


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        pytest.param(dedup(), [(0, 1, 0, "a", FRESH), (0, 1, 0, "a", DUPLICATE)], id="sent twice"),
        pytest.param(dedup(), [(0, 1, 0, "a", FRESH), (0, 1, 0, "b", CONFLICT)], id="sent twice, otherwise"),
        pytest.param(
            dedup(),
            [(0, 1, 0, "a", FRESH), (0, 1, 0, "b", CONFLICT), (0, 1, 0, "b", CONFLICT), (0, 1, 0, "a", DUPLICATE)],
            id="the first one stands",
        ),
        pytest.param(
            dedup(), [(0, 5, 3, "a", FRESH), (0, 5, 1, "b", FRESH), (0, 4, 9, "c", FRESH)], id="holes are filled"
        ),
        pytest.param(
            dedup(),
            [(0, 1, 0, "a", FRESH), (1, 1, 0, "a", DUPLICATE), (0, 2, 0, "b", OLD_EPOCH), (1, 2, 0, "b", FRESH)],
            id="a duplicate raises the epoch",
        ),
        pytest.param(
            dedup(recent_ids=2),
            [(0, 1, 0, "a", FRESH), (0, 1, 1, "b", FRESH), (0, 1, 2, "c", FRESH), (0, 1, 0, "a", STALE)],
            id="below the floor",
        ),
        pytest.param(
            dedup(recent_ids=2),
            [
                (0, 1, 0, "a", FRESH),
                (0, 1, 4, "b", FRESH),
                (0, 1, 6, "c", FRESH),
                (0, 1, 3, "d", FRESH),
                (0, 1, 3, "d", STALE),
                (0, 1, 5, "e", FRESH),
                (0, 1, 4, "b", STALE),
            ],
            id="a late one is trimmed at once and lifts the floor",
        ),
        pytest.param(
            dedup(hashes=1),
            [(0, 1, 0, "a", FRESH), (0, 1, 1, "b", FRESH), (0, 1, 0, "x", DUPLICATE), (0, 1, 1, "x", CONFLICT)],
            id="only the newest hash is kept",
        ),
        pytest.param(dedup(hashes=0), [(0, 1, 0, "a", FRESH), (0, 1, 0, "x", DUPLICATE)], id="no hashes, no conflicts"),
        pytest.param(
            dedup(hashes=1),
            [(0, 2, 0, "a", FRESH), (0, 1, 0, "b", FRESH), (0, 1, 0, "x", DUPLICATE), (0, 2, 0, "x", CONFLICT)],
            id="a late one does not take the place of the newest hash",
        ),
        pytest.param(
            dedup(hashes=1),
            [(0, 2, 0, "a", FRESH), (0, 3, 0, "b", FRESH), (0, 1, 0, "c", FRESH), (0, 1, 0, "x", DUPLICATE)],
            id="the hash of a late one is not kept",
        ),
    ],
)
def test_verdicts_are_as_documented(limits: Dedup, steps: list[Step]) -> None:
    model = Model(limits)
    for epoch, txn, seq, content, verdict in steps:
        assert model.judge(Stamp(b"p", epoch, (txn, seq)), content.encode()) == verdict


def test_bytes_are_freed_by_trimming_the_producer_that_was_fresh_longest_ago() -> None:
    model = Model(dedup(hashes=0, ledger_bytes=1_024))

    def send(producer: bytes, txn: int) -> str:
        return model.judge(Stamp(producer, 0, (txn, 0)), b"")

    # Two producers cost 2 * 49, each id alone in its range 3, and of those with transactions up to 304 or 306 there may
    # be two that are 128 above the one before: so many ids fit into 1,024 bytes, one more does not.
    assert [send(b"a", 2 * number) for number in range(153)] == [FRESH] * 153
    assert [send(b"b", 2 * number) for number in range(154)] == [FRESH] * 154
    assert model.cost == 98 + 3 * 307 + 2 * 2
    assert send(b"a", 0) == DUPLICATE  # no fresh id: "a" stays the oldest
    assert send(b"b", 308) == FRESH
    assert model.cost == 98 + 3 * 156 + 2
    assert send(b"a", 302) == STALE
    assert send(b"a", 304) == DUPLICATE
    assert send(b"b", 0) == DUPLICATE


def test_neighbours_in_one_transaction_share_a_range() -> None:
    model = Model(dedup(hashes=0))
    for seq in (0, 2, 1, 4):
        model.judge(Stamp(b"p", 0, (1, seq)), b"")
    model.judge(Stamp(b"p", 0, (2, 5)), b"")
    assert model.cost == 49 + 3 * 3


@settings(max_examples=300, deadline=None)
@given(
    limits=st.builds(
        dedup,
        recent_ids=st.integers(1, 8),
        hashes=st.integers(0, 6),
        ledger_bytes=st.sampled_from([1_024, 1_100, 1_300, 524_288]),
    ),
    # Few producers make many conflicts, many producers make evictions.
    steps=st.sampled_from([1, 12]).flatmap(
        lambda producers: st.lists(
            st.tuples(
                st.integers(0, producers), st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.integers(0, 1)
            ),
            max_size=150,
        )
    ),
)
def test_model_and_ledger_agree_on_every_verdict_and_on_the_cost(
    limits: Dedup, steps: list[tuple[int, int, int, int, int]]
) -> None:
    model, ledger = Model(limits), Ledger(limits)
    for producer, epoch, txn, seq, content in steps:
        name = f"producer-with-a-long-name-{producer}"
        verdict = ledger.judge(identity.Identity(name, epoch, txn, seq), content)
        assert model.judge(Stamp(name.encode(), epoch, (txn, seq)), b"%d" % content) == verdict.value
        assert model.cost == ledger.size_bytes


NUMBERS = st.one_of(
    st.none(),
    st.integers(0, 2**65).map(lambda number: b"%d" % number),
    st.sampled_from([b"", b"007", b"-1", b"+1", b" 1", b"1\n", b"1_0", b"1.0", b"0x1", "\u0661".encode(), b"9" * 99]),
    st.sampled_from([b"%d" % (2**63 - 1), b"%d" % 2**63, b"%d" % (2**31 - 1), b"%d" % 2**31, b"0" * 11, b"0" * 20]),
)
PRODUCERS = st.one_of(
    st.none(), st.binary(max_size=4), st.integers(198, 202).map(lambda n: b"x" * n), st.just("\u20ac".encode())
)


@settings(max_examples=300, deadline=None)
@given(producer=PRODUCERS, epoch=NUMBERS, txn=NUMBERS, seq=NUMBERS)
def test_both_readers_of_an_identity_agree(
    producer: bytes | None, epoch: bytes | None, txn: bytes | None, seq: bytes | None
) -> None:
    names = (NAMES.producer_id, NAMES.producer_epoch, NAMES.txn_id, NAMES.seq)
    given_headers = [pair for pair in zip(names, (producer, epoch, txn, seq), strict=True) if pair[1] is not None]
    parsed = identity.parse(producer, epoch, txn, seq)
    stamp = read_stamp([("other", b"1"), *given_headers], NAMES)
    assert (stamp is None) == (parsed is None)
    if stamp is not None and parsed is not None:
        assert (stamp.producer.decode(), stamp.epoch, *stamp.id) == tuple(parsed)


@pytest.mark.parametrize("name", ["producer-id", "producer-epoch", "txn-id", "seq"])
def test_a_repeated_identity_header_is_malformed_and_any_other_is_not(name: str) -> None:
    good: list[tuple[str, bytes | None]] = [
        ("producer-id", b"p"),
        ("producer-epoch", b"0"),
        ("txn-id", b"1"),
        ("seq", b"2"),
    ]
    assert read_stamp([*good, ("other", b"1"), ("other", b"1")], NAMES) == Stamp(b"p", 0, (1, 2))
    assert read_stamp([*good, (name, b"1")], NAMES) is None


def test_digests_tell_nulls_empties_and_borders_apart() -> None:
    lists: list[list[bytes | None]] = [
        [],
        [None],
        [b""],
        [b"", b""],
        [None, b""],
        [b"ab"],
        [b"a", b"b"],
        [b"-"],
        [b"1:a"],
    ]
    assert len({digest(parts) for parts in lists}) == len(lists)


def test_the_same_content_from_two_source_partitions_has_no_order() -> None:
    tally = Tally(("out",))
    same, other = digest([b"same"]), digest([b"other"])
    tally.expect("out", b"k", same, (0, 5, 0))
    tally.expect("out", b"k", other, (1, 1, 0))
    tally.expect("out", b"k", same, (1, 7, 0))
    for offset, content in enumerate([same, same, other]):
        tally.find("out", b"k", content, 0, offset)
    assert tally.compare().out_of_order == 0


def test_the_same_content_twice_in_one_source_partition_keeps_its_order() -> None:
    tally = Tally(("out",))
    same, other = digest([b"same"]), digest([b"other"])
    for offset, content in enumerate([same, other, same]):
        tally.expect("out", b"k", content, (0, 2 - offset, 0))  # the user's function need not answer in order
        tally.find("out", b"k", content, 0, offset)
    comparison = tally.compare()
    assert comparison.out_of_order == 0
    assert (comparison.counts["out"].lost, comparison.counts["out"].duplicated) == (0, 0)


def test_records_without_a_key_have_neither_order_nor_home() -> None:
    tally = Tally(("out",))
    contents = [digest([b"%d" % number]) for number in range(50)]
    for offset, content in enumerate(contents):
        tally.expect("out", None, content, (0, offset, 0))
        tally.find("out", None, contents[-1 - offset], offset % 2, offset)
    comparison = tally.compare()
    assert (comparison.out_of_order, len(comparison.split), comparison.counts["out"].lost) == (0, 0, 0)


def test_the_outputs_of_one_source_record_keep_their_order() -> None:
    tally = Tally(("out",))
    first, second = digest([b"first"]), digest([b"second"])
    tally.expect("out", b"k", first, (0, 5, 0))
    tally.expect("out", b"k", second, (0, 5, 1))
    tally.find("out", b"k", second, 0, 0)
    tally.find("out", b"k", first, 0, 1)
    assert tally.compare().out_of_order == 1
