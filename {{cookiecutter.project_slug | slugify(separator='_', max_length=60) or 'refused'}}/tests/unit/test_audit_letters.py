"""The audit and dead letters: each reason in its own row, and copies that had to be cut, to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reference import World, settings_for

from pipeline.errors import PipelineError
from pipeline.local.malformed import stamp
from pipeline.observe.audit import topics
from pipeline.observe.audit.judge import judge
from pipeline.observe.audit.model import CODEC
from pipeline.observe.audit.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.observe.audit.records import Headers
    from pipeline.observe.audit.result import AuditResult

LIMIT = 2_000
Letter = tuple[bytes | None, bytes | None, "Headers"]


def world_of(letters: Sequence[Letter], limit: int = LIMIT) -> World:
    """Return what an exact pipeline makes of one partition with these unusable records."""
    records = [
        Record(0, offset, 1_000, key, value, [*headers, *stamp(b"till", 0, 0, offset)])
        for offset, (key, value, headers) in enumerate(letters)
    ]
    world = World(settings_for(), {0: records}, limit=limit)
    world.run()
    return world


def audited(world: World) -> AuditResult:
    """Judge the world as it is now."""
    return judge(world.settings, world, world.expected())


def retold(letter: Record, name: str, value: bytes) -> Record:
    """Return the letter with another value in one of its headers."""
    return letter._replace(headers=[(key, value if key == name else old) for key, old in letter.headers])


def only(world: World) -> tuple[list[Record], Record]:
    """Return the one letter, and the log that holds it."""
    [(log, letter)] = [(log, record) for log in world.topics["dead"].values() for record in log]
    return log, letter


def test_each_reason_of_the_codec_has_its_own_row_with_expected_and_found() -> None:
    world = world_of([(b"k", f"{reason}:{number}".encode(), []) for reason in CODEC for number in range(2)])
    result = audited(world)
    assert result.exact, result.remarks()
    rows = {row[0].removeprefix("dead letters: "): row[1:3] for row in result.rows()}
    assert {reason: rows[reason] for reason in CODEC} == dict.fromkeys(CODEC, ("2", "2"))
    assert rows["decode"] == ("0", "0")


def test_reasons_that_never_occurred_have_no_row() -> None:
    names = [row[0] for row in audited(world_of([(b"k", b"rubbish", [])])).rows()]
    assert "dead letters: decode" in names
    assert "dead letters: trailing" not in names


@pytest.mark.parametrize("told", ["decode", "trailing", "identity", "made-up"])
def test_a_letter_that_tells_another_reason_is_found_under_both(told: str) -> None:
    world = world_of([(b"k", b"limits:", [])])
    log, letter = only(world)
    log[0] = retold(letter, "dead-letter-reason", told.encode())
    result = audited(world)
    assert not result.exact
    assert result.dead_letters["limits"].lost == 1
    assert result.dead_letters["unknown" if told == "made-up" else told].unexpected == 1


def test_a_counter_under_another_reason_of_the_codec_is_named() -> None:
    world = world_of([(b"k", b"limits:", [])])
    world.lanes[0].counters.dead_letters = {"trailing": 1}
    world.commit_lane(0)
    assert audited(world).counters_wrong == [
        "app.payments.0: dead letters limits is 0, must be 1",
        "app.payments.0: dead letters trailing is 1, must be 0",
    ]


TOO_LARGE: dict[str, Letter] = {
    "value": (b"k", bytes(5_000), [("a", b"1")]),
    "key": (bytes(5_000), b"rubbish", []),
    "key without a value": (bytes(5_000), None, []),
    "value without a key": (None, bytes(5_000), []),
    "headers": (b"k", b"rubbish", [("a", bytes(5_000))]),
    "headers that may stay": (b"k", bytes(5_000), [("a", bytes(500))]),
    "all three": (bytes(5_000), bytes(5_000), [("a", bytes(5_000))]),
}


@pytest.mark.parametrize("letter", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_letter_that_had_to_be_cut_is_expected_cut(letter: Letter) -> None:
    world = world_of([letter, (b"k", b"rubbish", [])])
    cut = [record for record in world.written("dead") if "dead-letter-cut" in dict(record.headers)]
    assert len(cut) == 1
    result = audited(world)
    assert result.exact, result.remarks()


@given(
    st.tuples(
        st.none() | st.binary(max_size=20).map(lambda data: data * 60),
        st.none() | st.binary(max_size=20).map(lambda data: data * 120),
        st.lists(st.tuples(st.text("ab", max_size=9), st.none() | st.binary(max_size=900)), max_size=3),
    ),
    st.integers(400, 3_000),
)
def test_the_audit_cuts_as_the_writer_does(letter: Letter, limit: int) -> None:
    result = audited(world_of([letter], limit))
    assert result.exact, result.remarks()


@pytest.mark.parametrize(
    "change",
    [
        lambda letter: letter._replace(value=letter.value[:-1]),
        lambda letter: letter._replace(value=letter.value + b"\0"),
        lambda letter: letter._replace(value=b"\1" + letter.value[1:]),
        lambda letter: letter._replace(key=b""),
        lambda letter: letter._replace(headers=letter.headers[1:]),
        lambda letter: retold(letter, "dead-letter-cut", b"1,5001,12"),
        lambda letter: letter._replace(headers=[item for item in letter.headers if item[0] != "dead-letter-cut"]),
        lambda letter: retold(letter, "dead-letter-offset", b"1"),
    ],
    ids=["shorter", "longer", "altered", "other key", "header gone", "other lengths", "no mark", "other place"],
)
def test_a_letter_that_was_cut_otherwise_is_lost_and_another_unexpected(change: Any) -> None:
    world = world_of([(b"k", bytes(5_000), [("a", b"1")])])
    log, letter = only(world)
    log[0] = change(letter)
    result = audited(world)
    assert (result.lost, result.unexpected) == (1, 1)


def test_a_letter_that_was_cut_for_nothing_is_lost_and_another_unexpected() -> None:
    world = world_of([(b"k", bytes(5_000), [])])
    world.limit = 10_000
    result = audited(world)
    assert (result.lost, result.unexpected) == (1, 1)


def test_a_letter_whose_topic_took_more_than_it_takes_today_is_expected_whole() -> None:
    world = world_of([(b"k", bytes(5_000), [])], limit=10_000)
    world.limit = LIMIT
    assert audited(world).exact


def test_a_record_that_only_says_it_was_cut_is_expected_as_it_is() -> None:
    assert audited(world_of([(b"k", b"rubbish", [("dead-letter-cut", b"9,9,9")])])).exact


def test_header_names_that_cannot_be_read_end_the_audit_with_one_line() -> None:
    class Odd:
        def topic(self) -> str:
            return "payments"

        def partition(self) -> int:
            return 3

        def offset(self) -> int:
            return 7

        def headers(self) -> Any:
            return b"\xff".decode()

    with pytest.raises(PipelineError, match="payments, partition 3, offset 7: the name of a header is not UTF-8"):
        topics._record(Odd())  # noqa: SLF001  what all reads are made of
