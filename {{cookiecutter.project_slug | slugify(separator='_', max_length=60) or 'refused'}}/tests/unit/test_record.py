"""The lane record: what is written comes back, and whatever else is found stops the job with a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.errors import SafeStop
from pipeline.lanes.columns import Columns, ProducerState
from pipeline.lanes.identity import Identity
from pipeline.lanes.ledger import Ledger
from pipeline.lanes.record import Counters, LaneRecord, decode, encode, lane_key
from pipeline.sections import Dedup

MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1
MAX_INT = 2**31 - 1

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)

edges = st.sampled_from([MIN_LONG, MIN_LONG + 1, -1, 0, 1, 63, 64, 2**31, 2**32, 2**53 + 1, MAX_LONG - 1, MAX_LONG])
longs = st.one_of(edges, st.integers(MIN_LONG, MAX_LONG))
naturals = longs.map(lambda number: number if number >= 0 else -(number + 1))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.dictionaries(text, naturals, max_size=4)


@st.composite
def ledgers(draw: st.DrawFn) -> Columns:
    bounds = {"recent_ids": draw(st.integers(1, 9)), "hashes": draw(st.integers(0, 9)), "ledger_bytes": 1_024}
    ledger = Ledger(Dedup.model_validate(bounds))
    ids = st.builds(
        Identity,
        text.filter(bool),
        naturals,
        st.one_of(st.integers(0, 3), naturals),
        st.one_of(st.integers(0, 3), st.integers(MAX_INT - 2, MAX_INT)),
    )
    for identity, digest in draw(st.lists(st.tuples(ids, longs), max_size=30)):
        ledger.judge(identity, digest)
    return ledger.columns()


records = st.builds(
    LaneRecord,
    app=text,
    source_topic=text,
    topic_id=st.tuples(longs, longs),
    partition=st.integers(0, MAX_INT),
    run=naturals,
    start_offset=naturals,
    next_offset=naturals,
    producers=ledgers(),
    counters=st.builds(Counters, naturals, naturals, naturals, counts, counts, naturals, naturals),
    code_version=text,
)

STATE = ProducerState("p", 1, (3, 4), [3, 5], [7, 0], [8, 2], [-1, 2, 3])
RECORD = LaneRecord(
    app="shop",
    source_topic="payments",
    topic_id=(MIN_LONG, MAX_LONG),
    partition=7,
    run=2,
    start_offset=10,
    next_offset=99,
    producers=Columns.of([STATE]),
    counters=Counters(5, 4, 1, {"fresh": 5}, {"stale": 1}, 3, 2),
    code_version="0.1.0",
)

GOLDEN = (
    "020873686f70107061796d656e747302010e0414c601020270000201020402050202020304030204070004010230ffffffff"
    "ffffffff000000000000000200000000000000030a0802020a66726573680a00020a7374616c65020006040a302e312e30"
)


@quiet
@given(records)
@example(RECORD)
def test_a_record_comes_back_as_it_was_written(record: LaneRecord) -> None:
    assert decode(encode(record), record.key) == record


def test_the_bytes_of_version_two_are_fixed() -> None:
    # A stored lane must stay readable: this may change only together with the version byte.
    assert encode(replace(RECORD, topic_id=(1, -1))).hex() == GOLDEN


def test_the_key_names_app_topic_and_partition() -> None:
    assert lane_key("shop", "payments", 7) == RECORD.key == b"shop.payments.7"


@pytest.mark.parametrize("version", [0, 1, 4, 255])
def test_another_version_stops_and_says_which_code_to_run(version: int) -> None:
    with pytest.raises(
        SafeStop, match=rf"shop\.payments\.7: version {version}, .* reads versions 2 and 3; run the code version"
    ):
        decode(bytes([version]) + encode(RECORD)[1:], RECORD.key)


def test_an_empty_value_stops() -> None:
    with pytest.raises(SafeStop, match=r"shop\.payments\.7: no bytes at all.*do not delete"):
        decode(b"", RECORD.key)


def test_a_record_cut_off_anywhere_stops() -> None:
    data = encode(RECORD)
    for end in range(1, len(data)):
        with pytest.raises(SafeStop, match=r"shop\.payments\.7: damaged, .*restore the topic"):
            decode(data[:end], RECORD.key)


def test_bytes_after_the_record_stop() -> None:
    with pytest.raises(SafeStop, match="damaged, 3 bytes too many"):
        decode(encode(RECORD) + b"\x00\x00\x00", RECORD.key)


def test_the_record_of_another_lane_stops_and_names_both() -> None:
    with pytest.raises(SafeStop, match=r"shop\.payments\.8: holds the lane shop\.payments\.7 instead.*own app\.id"):
        decode(encode(RECORD), b"shop.payments.8")


def test_without_a_lane_to_compare_with_damage_still_stops() -> None:
    assert decode(encode(RECORD)) == RECORD
    with pytest.raises(SafeStop, match="unknown lane"):
        decode(b"\x02")


@quiet
@given(st.binary(max_size=200))
@example(bytes.fromhex("feffffffffffffffff01"))
def test_garbage_behind_the_version_byte_never_does_anything_but_stop(garbage: bytes) -> None:
    with pytest.raises(SafeStop):
        decode(b"\x02" + garbage, RECORD.key)


@quiet
@given(st.data())
def test_one_changed_byte_is_read_as_a_whole_record_or_stops(data: st.DataObject) -> None:
    whole = bytearray(encode(RECORD))
    place = data.draw(st.integers(1, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    try:
        record = decode(bytes(whole), RECORD.key)
    except SafeStop:
        return
    assert decode(encode(record), record.key) == record


@pytest.mark.parametrize(
    "state",
    [
        STATE._replace(txns=[3]),
        STATE._replace(txns=[], firsts=[], lasts=[], digests=[]),
        STATE._replace(txns=[5, 3]),
        STATE._replace(txns=[3, 3], firsts=[7, 8], lasts=[8, 9]),
        STATE._replace(firsts=[9, 0]),
        STATE._replace(floor=(3, 7)),
        STATE._replace(digests=[1] * 6),
    ],
)
def test_a_ledger_that_contradicts_itself_stops(state: ProducerState) -> None:
    with pytest.raises(SafeStop, match="damaged"):
        decode(encode(replace(RECORD, producers=Columns.of([state]))), RECORD.key)


@pytest.mark.parametrize(("firsts", "lasts"), [([0, 0], [0, 0]), ([10, 3], [10, 3]), ([10, 10], [12, 12])])
def test_ranges_of_one_transaction_that_do_not_rise_stop(firsts: list[int], lasts: list[int]) -> None:
    state = STATE._replace(floor=None, txns=[5, 5], firsts=firsts, lasts=lasts, digests=[])
    with pytest.raises(SafeStop, match="damaged, ranges are not rising"):
        decode(encode(replace(RECORD, producers=Columns.of([state]))), RECORD.key)


def test_a_producer_that_stands_in_the_record_twice_stops() -> None:
    with pytest.raises(SafeStop, match="a producer stands in it twice"):
        decode(encode(replace(RECORD, producers=Columns.of([STATE, STATE]))), RECORD.key)


def test_the_cost_of_a_ledger_bounds_its_bytes_at_the_widest_numbers() -> None:
    ledger = Ledger(Dedup.model_validate({}))
    empty = len(encode(replace(RECORD, producers=Columns.of([]))))
    for number in range(300):
        name = f"{number:03}" + "p" * (number % 190)
        for back in (4, 2, 0):
            ledger.judge(Identity(name, MAX_LONG, MAX_LONG - back, MAX_INT), MIN_LONG)
    encoded = len(encode(replace(RECORD, producers=ledger.columns())))
    assert encoded - empty <= ledger.size_bytes
