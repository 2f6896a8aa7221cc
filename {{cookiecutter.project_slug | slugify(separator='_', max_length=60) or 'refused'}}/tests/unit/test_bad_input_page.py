"""The page on bad input is what the tests say."""

from __future__ import annotations

from tests.support.bad_input import PAGE, page


def test_the_page_is_written_from_the_tests() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.support.bad_input`"
