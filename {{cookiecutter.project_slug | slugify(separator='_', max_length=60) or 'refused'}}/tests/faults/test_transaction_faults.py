"""D1 to D4: requests of a transaction are late, lost, repeated or too slow, and every chunk is committed once.

What the proxy saw is the evidence: the commits that the broker took are exactly the transactions whose markers stand
in the lanes' partitions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.arena import TIMEOUT_MS, Arena, arena, shared
from tests.support.frames import END_TXN, TRANSACTIONAL
from tests.support.lanes import App, provisioned
from tests.support.segments import commits

from pipeline.flow.shutdown import open_partitions
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
    monkeypatch.setattr("pipeline.lanes.fence.FENCE_SECONDS", 2.0)
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


@pytest.fixture(scope="module")
def arenas(proxied: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Arena]]:
    """Return what gives the arena: the same for all cases, until one leaves it broken."""
    folder = tmp_path_factory.mktemp("transactions")
    with shared(lambda: arena(proxied, folder, through=proxied.proxied)) as give:
        yield give


@pytest.fixture
def used(arenas: Callable[[], Arena], evidence: Evidence, hurt: Proxy, proxied: ProxiedBroker) -> Iterator[Arena]:
    """Return a job that runs through the proxy; it ends with an exact output, and commits as the proxy saw them."""
    given = arenas()
    given.evidence, given.broken = evidence, True
    given.watch(given.caught_up, what="the job runs")
    yield given
    hurt.forget_rules()
    given.assert_recovered()
    taken = {(producer, epoch) for _, producer, epoch in hurt.commits(given.app.settings.app.id)}
    folders = list((proxied.log().parent / "data").glob(f"{given.app.settings.lane_topic}-*"))
    written = set().union(*map(commits, folders))
    # The first record of each lane was written past the proxy.
    assert (taken - written, len(written - taken)) == (set(), given.app.partitions)


@pytest.mark.long
@pytest.mark.fault("D1")
def test_a_commit_that_arrives_seconds_late_ends_no_other_transaction(hurt: Proxy, used: Arena) -> None:
    used.work(used.evidence.seed)
    used.settle()  # what takes the lanes over has ids that no later transaction may have
    held = hurt.hold_next(END_TXN)
    used.work(used.evidence.seed + 1)
    used.watch(held.caught, what="a commit came")
    used.work(used.evidence.seed + 2)
    used.watch(held.is_fenced, what="the lanes of that commit have gone on")
    assert held.release() == INVALID_PRODUCER_EPOCH


@pytest.mark.long
@pytest.mark.parametrize("api_key", each_request())
def test_a_job_whose_request_is_hurt_on_its_way_stays_exact(hurt: Proxy, used: Arena, api_key: int) -> None:
    how = list(HURTS.values())[used.evidence.seed % len(HURTS)]
    how(hurt, api_key, 1 + used.evidence.seed % 5)
    used.work(used.evidence.seed, 400)
    used.watch(lambda: hurt.waiting(api_key) == 0, what="the request came")


@pytest.mark.long
@pytest.mark.parametrize("api_key", each_request())
def test_a_job_whose_requests_are_not_answered_for_a_while_stays_exact(hurt: Proxy, used: Arena, api_key: int) -> None:
    hurt.lose_answers(api_key, LOST_ANSWERS)
    used.work(used.evidence.seed, 400)
    used.watch(lambda: hurt.waiting(api_key) < LOST_ANSWERS, what="a request came")
    until = time.monotonic() + 2 * TIMEOUT_MS / 1000
    used.watch(lambda: time.monotonic() > until, what="what was open has timed out")


@pytest.mark.long
@pytest.mark.fault("D4")
def test_a_chunk_slower_than_the_time_out_is_written_anew_and_the_setting_is_named(used: Arena) -> None:
    used.faults.arm("after compare", "wait")
    used.work(used.evidence.seed, 400)
    used.watch(used.faults.struck, what="a transaction is held up")
    used.watch(lambda: aborted_by_the_broker(used), what="the broker has ended it")
    used.faults.go()
    used.watch(lambda: "transaction.timeout_ms" in used.running.log, what="a warning names the setting")
    assert used.exits == [], "the job itself goes on"


def aborted_by_the_broker(used: Arena) -> bool:
    """Tell whether what the held writer sent is in the log, and no transaction is open there any more."""
    return bool(used.faults.struck()) and not open_partitions(used.app.settings)
