"""D1 to D4: requests of a transaction are late, lost, repeated or too slow, and every chunk is committed once.

What the proxy saw is the evidence: of all the requests to end a transaction, the broker took exactly one commit for
each lane record that stands in the log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.arena import RECOVERY_SECONDS, TIMEOUT_MS, Arena, arena
from tests.support.frames import END_TXN, TRANSACTIONAL
from tests.support.kafka import read_committed
from tests.support.lanes import App, provisioned

from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.arena import Evidence
    from tests.support.proxy import ProxiedBroker, Proxy

ROWS = 20
# The shortest that settings allow: what is never answered is given up soon.
SHORT = {"timeout_ms": 1_000, "chunk_seconds": 0.5, "chunk_rows": 5}
# More than a client tries until it gives up.
LOST_ANSWERS = 1_000
INVALID_PRODUCER_EPOCH = 47
OK = 0

HURTS: dict[str, Callable[[Proxy, int, int], None]] = {
    "one answer lost": lambda proxy, api_key, nth: proxy.lose_answers(api_key, 1, nth),
    "two answers lost": lambda proxy, api_key, nth: proxy.lose_answers(api_key, 2, nth),
    "answer cut in half": lambda proxy, api_key, nth: proxy.cut(api_key, nth),
    "request repeated": lambda proxy, api_key, nth: proxy.repeat(api_key, nth),
}


def case_of(api_key: int) -> str:
    """D2 is about the end of a transaction, D3 about all that comes before."""
    return "D2" if api_key == END_TXN else "D3"


def each_request(*marks: pytest.MarkDecorator) -> list[Any]:
    """All that a writer sends in a transaction; offsets are not among it, its progress is a record."""
    return [
        pytest.param(api_key, id=name, marks=[pytest.mark.fault(case_of(api_key)), *marks])
        for api_key, name in TRANSACTIONAL.items()
    ]


@pytest.fixture
def hurt(proxied: ProxiedBroker) -> Iterator[Proxy]:
    """Return the proxy; it has no rules left when the test ends."""
    yield proxied.proxy
    proxied.proxy.forget_rules()


@pytest.fixture
def app(proxied: ProxiedBroker) -> App:
    """Return an app whose writers go through the proxy, its own first records too."""
    return provisioned(proxied.bootstrap, output={"bootstrap": proxied.proxied}, transaction=SHORT)


def assert_each_chunk_was_committed_once(proxy: Proxy, app: App) -> None:
    """Demand every row once, and as many commits that the broker took as there are lane records."""
    assert app.written() == list(range(ROWS))
    records = app.lane_records()
    assert [lane.next_offset for lane in records] == [0, 5, 10, 15, 20]
    assert len(proxy.commits(app.settings.app.id)) == len(records)


@pytest.mark.parametrize("how", HURTS)
@pytest.mark.parametrize("api_key", each_request())
def test_a_request_that_is_hurt_on_its_way_changes_nothing(hurt: Proxy, app: App, api_key: int, how: str) -> None:
    HURTS[how](hurt, api_key, 2)
    app.write(0, ROWS)
    assert hurt.waiting(api_key) == 0, "no such request came"
    assert_each_chunk_was_committed_once(hurt, app)


@pytest.mark.parametrize("api_key", each_request())
def test_a_request_that_is_never_answered_is_settled_by_the_next_producer(
    hurt: Proxy, app: App, monkeypatch: pytest.MonkeyPatch, api_key: int
) -> None:
    monkeypatch.setattr("pipeline.lanes.transaction.MARGIN_SECONDS", 0.5)
    monkeypatch.setattr("pipeline.lanes.transaction.FENCE_SECONDS", 2.0)
    lost: list[int] = []

    def healing(*args: Any, name_failures: bool) -> Transaction:
        if name_failures:  # a second attempt
            lost.append(LOST_ANSWERS - hurt.waiting(api_key))
            hurt.forget_rules()
        return Transaction(*args, name_failures=name_failures)

    monkeypatch.setattr("pipeline.lanes.writer.Transaction", healing)
    hurt.lose_answers(api_key, LOST_ANSWERS)
    report = app.write(0, ROWS)
    assert lost
    assert lost[0] > 0
    assert sum(report.failures.values()) == 1
    assert_each_chunk_was_committed_once(hurt, app)
