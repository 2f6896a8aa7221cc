"""Identities in columns are those that are read record by record, whatever the headers hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.rows import HEADERS, NAMES

from pipeline.lanes.identity import parse
from pipeline.lanes.stamps import Stamps, stamps
from pipeline.sections import Identity

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None, max_examples=300)

numbers = st.one_of(
    st.none(),
    st.binary(max_size=25),
    st.sampled_from([b"", b"0", b"007", b"-1", b"+1", b" 1", b"1 ", b"1_0", "٣".encode(), b"1" * 19, b"1" * 20]),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**19 - 1, 10**19]).map(lambda number: b"%d" % number),
    st.integers(0, 10**20).map(lambda number: b"%d" % number),
)
producers = st.one_of(
    st.none(), st.binary(max_size=3), st.sampled_from([b"p", b"", b"\xff", "é".encode(), b"p" * 200, b"p" * 201])
)
headers = st.lists(
    st.one_of(
        st.tuples(st.just(NAMES[0]), producers),
        st.tuples(st.sampled_from(NAMES[1:]), numbers),
        st.tuples(st.text(max_size=3), numbers),
    ),
    max_size=6,
)
whole = st.tuples(producers, numbers, numbers, numbers).map(lambda values: list(zip(NAMES, values, strict=True)))
records = st.lists(st.one_of(st.none(), headers, whole), max_size=8)


def expected(record: list[tuple[str, bytes | None]] | None) -> tuple[Any, ...] | None:
    """Return what `parse` makes of a record's headers; none may come twice."""
    names = [name for name, _ in record or [] if name in NAMES]
    if len(names) > len(set(names)):
        return None
    held = dict(record or [])
    identity = parse(*(held.get(name) for name in NAMES))
    return None if identity is None else tuple(identity)


def identities(found: Stamps) -> list[tuple[Any, ...] | None]:
    """Return identities one by one; none where one is not sound."""
    columns = (found.producers, found.epochs, found.txns, found.seqs, found.sound)
    return [
        (found.names[name], epoch, txn, seq) if sound else None
        for name, epoch, txn, seq, sound in zip(*(column.tolist() for column in columns), strict=True)
    ]


@pytest.mark.thorough
@quiet
@given(records, st.integers(0, 4))
@example([[("producer-id", b"p"), ("txn-id", b"1"), ("seq", b"2"), ("seq", b"2")]], 0)
@example([[("producer-id", b"p"), ("txn-id", b"1"), ("seq", b"2"), ("producer-epoch", None)]], 0)
def test_identities_in_columns_are_those_read_one_by_one_also_from_a_slice(given_records: list[Any], skip: int) -> None:
    listed = [
        None if record is None else [{"key": name, "value": value} for name, value in record]
        for record in given_records
    ]
    column = pa.array(listed, HEADERS).slice(skip)
    assert identities(stamps(column, Identity())) == [expected(record) for record in given_records[skip:]]


@pytest.mark.thorough
@quiet
@given(st.lists(whole, max_size=8), st.data())
def test_a_cut_holds_the_identities_of_its_rows(given_records: list[Any], data: st.DataObject) -> None:
    column = pa.array([[{"key": n, "value": v} for n, v in record] for record in given_records], HEADERS)
    start = data.draw(st.integers(0, len(given_records)))
    end = data.draw(st.integers(start, len(given_records)))
    found = stamps(column, Identity())
    assert identities(found.cut(start, end)) == identities(found)[start:end]
