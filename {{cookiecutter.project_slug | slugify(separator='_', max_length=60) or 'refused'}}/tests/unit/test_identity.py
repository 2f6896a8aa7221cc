"""An identity is read strictly: what was stamped comes back, anything else is None."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.lanes.identity import Identity, headers, parse
from pipeline.sections import Identity as Names

MAX_LONG = 9_223_372_036_854_775_807
MAX_INT = 2_147_483_647

# The time of an example says nothing on a busy machine; no file is left in the source tree.
quiet = settings(deadline=None, database=None)

producer_ids = st.text(min_size=1, max_size=200).filter(
    lambda text: not any("\ud800" <= c <= "\udfff" for c in text) and len(text.encode()) <= 200
)
identities = st.builds(
    Identity,
    producer_id=producer_ids,
    epoch=st.integers(0, MAX_LONG),
    txn=st.integers(0, MAX_LONG),
    seq=st.integers(0, MAX_INT),
)


@quiet
@given(identities)
@example(Identity("p", MAX_LONG, MAX_LONG, MAX_INT))
@example(Identity("é" * 100, 0, 0, 0))
def test_a_stamp_is_read_back_as_the_identity_that_was_stamped(identity: Identity) -> None:
    names = Names()
    stamp = dict(headers(identity, names))
    read = parse(stamp[names.producer_id], stamp[names.producer_epoch], stamp[names.txn_id], stamp[names.seq])
    assert read == identity


def test_the_stamp_uses_the_header_names_of_the_settings_in_a_fixed_order() -> None:
    names = Names(producer_id="a", producer_epoch="b", txn_id="c", seq="d")
    assert headers(Identity("p", 1, 2, 3), names) == [("a", b"p"), ("b", b"1"), ("c", b"2"), ("d", b"3")]


def test_an_absent_epoch_is_zero_but_an_empty_one_is_malformed() -> None:
    assert parse(b"p", None, b"1", b"2") == Identity("p", 0, 1, 2)
    assert parse(b"p", b"", b"1", b"2") is None


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_missing_header_other_than_the_epoch_is_malformed(missing: int) -> None:
    values: list[bytes | None] = [b"p", b"0", b"1", b"2"]
    values[missing] = None
    assert parse(*values) is None


@pytest.mark.parametrize("name", [b"", b"p" * 201, "é".encode() * 101, b"\xff\xfe", b"\xed\xa0\x80"])
def test_a_producer_id_that_is_empty_too_long_or_not_utf8_is_malformed(name: bytes) -> None:
    assert parse(name, b"0", b"0", b"0") is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b" ",
            b" 1",
            b"1 ",
            b"1\n",
            b"+1",
            b"-1",
            b"-0",
            b"1_0",
            b"1.0",
            b"1e3",
            b"0x1",
            b"1,0",
            b"\x00",
            b"1\x00",
        ),
        *("\u0661".encode(), "\uff11".encode(), "\u00b2".encode(), b"one", b"None"),
        *(b"9223372036854775808", b"00000000000000000001", b"1" * 20, b"9" * 1_000_000),
    ],
)
def test_a_number_that_is_not_plain_ascii_digits_within_its_range_is_malformed(text: bytes) -> None:
    assert parse(b"p", text, b"0", b"0") is None
    assert parse(b"p", b"0", text, b"0") is None
    assert parse(b"p", b"0", b"0", text) is None


def test_seq_is_bounded_as_an_int_of_four_bytes() -> None:
    assert parse(b"p", b"0", b"0", b"2147483647") == Identity("p", 0, 0, MAX_INT)
    assert parse(b"p", b"0", b"0", b"2147483648") is None
    assert parse(b"p", b"0", b"0", b"00000000001") is None


def test_zeros_in_front_are_plain_digits_while_the_text_fits_its_type() -> None:
    assert parse(b"p", b"00", b"007", b"0000000001") == Identity("p", 0, 7, 1)


@quiet
@given(st.binary(max_size=24))
@example(b"0" * 19)
def test_any_bytes_are_either_a_number_in_range_or_malformed(text: bytes) -> None:
    read = parse(b"p", b"0", text, b"0")
    plain = 0 < len(text) <= 19 and set(text) <= set(b"0123456789") and int(text) <= MAX_LONG
    assert read == (Identity("p", 0, int(text), 0) if plain else None)
