"""A1 to A10: the source is away, cut off, blocked, full of markers or of poison; the job waits, goes on, or stops.

Cases that other tests show already carry their mark there: A5, A6 and A7 in `tests/integration`.
"""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.support.arena import RECOVERY_SECONDS, arena
from tests.support.frames import FETCH
from tests.support.job import STOP_SECONDS, new_app, payment
from tests.support.kafka import DEADLINE_SECONDS, QUIET, fresh

from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.shutdown import open_partitions
from pipeline.lanes.provision import accept_loss
from pipeline.lanes.topics import Topics
from pipeline.local.malformed import UNDECODABLE, broken_stamps, stamp
from pipeline.observe.scrape import Scrape, scrape
from pipeline.observe.watch import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.arena import Arena, Evidence
    from tests.support.job import App
    from tests.support.proxy import ProxiedBroker

    from pipeline.flow.job import Job
    from pipeline.observe.progress import Batch

UNREACHABLE = 6
OPEN_SECONDS = 40.0
CUT_EVERY_SECONDS = 3.0
CUTS_SECONDS = 60.0
STOPS = 10
STOP_WITHIN_SECONDS = 5.0


@pytest.fixture
def app(proxied: ProxiedBroker, tmp_path: Path) -> App:
    """Return a fresh app."""
    return new_app(proxied.bootstrap, tmp_path)


@pytest.fixture
def used(proxied: ProxiedBroker, tmp_path: Path, evidence: Evidence) -> Iterator[Arena]:
    """Return a job that is to run through the proxy."""
    ready = {"ready_seconds": 5.0}  # a job that is behind, and gets nowhere, is soon not ready any more
    with arena(proxied, tmp_path, through=proxied.proxied, metrics=ready) as given:
        given.evidence = evidence
        yield given
    proxied.proxy.forget_rules()


def told(used: Arena) -> Scrape | None:
    """Return what the job exposes, if it answers."""
    try:
        return scrape(endpoint_of(used.app.settings))
    except PipelineError:
        return None


@pytest.mark.long
@pytest.mark.fault("A1")
def test_a_job_whose_cluster_is_away_at_its_start_is_not_ready_ends_in_time_and_goes_on_once_it_is_there(
    proxied: ProxiedBroker, used: Arena
) -> None:
    used.app.send(500, seed=used.evidence.seed)
    with proxied.proxy.away():
        first, started = used.running, time.monotonic()
        used.watch(lambda: (now := told(used)) is not None and now.ready, what="the endpoint answers")
        shown = told(used)
        assert shown is not None
        assert shown.ready == "the lanes are not taken over yet"
        assert first.wait() == UNREACHABLE, first.log
        assert time.monotonic() - started < RECOVERY_SECONDS
        (line,) = first.log.splitlines()
        assert f"(cluster {proxied.proxied}); check the address and that the brokers run" in line
        assert not used.app.checkpoint.exists(), "nothing is left half made"
        used.watch(lambda: len(used.exits) > 1, what="its supervisor tries again")
    assert set(used.exits) == {UNREACHABLE}
    used.assert_recovered()


@pytest.mark.long
@pytest.mark.fault("A1")
def test_a_job_whose_cluster_comes_within_the_limit_needs_no_second_start(proxied: ProxiedBroker, used: Arena) -> None:
    used.app.send(500, seed=used.evidence.seed)
    with proxied.proxy.away():
        used.watch(lambda: told(used) is not None, what="the endpoint answers")
    used.assert_recovered()
    assert used.exits == []


@pytest.mark.long
@pytest.mark.fault("A2")
def test_fetches_that_are_cut_off_again_and_again_lose_nothing(proxied: ProxiedBroker, used: Arena) -> None:
    used.watch(used.caught_up, what="the job runs")
    until = time.monotonic() + CUTS_SECONDS
    cuts = 0
    while time.monotonic() < until:
        proxied.proxy.cut(FETCH, 1 + (used.evidence.seed + cuts) % 4)
        used.app.send(200, seed=used.evidence.seed + cuts)
        cuts += 1
        next_cut = time.monotonic() + CUT_EVERY_SECONDS
        used.watch(lambda due=next_cut: time.monotonic() > due, what="the next cut is due")  # type: ignore[misc]
    assert cuts > 5
    used.assert_recovered()


@pytest.mark.long
@pytest.mark.fault("A3")
def test_behind_an_open_upstream_transaction_the_job_is_blocked_and_not_behind(used: Arena) -> None:
    used.work(used.evidence.seed)
    used.watch(used.caught_up, what="the job runs")
    app = used.app
    upstream = Producer({"bootstrap.servers": app.bootstrap, "transactional.id": fresh("open"), **QUIET})
    upstream.init_transactions(DEADLINE_SECONDS)
    upstream.begin_transaction()
    for partition in range(app.partitions):
        value = payment(b"never-%d" % partition)
        upstream.produce(app.topic, value, b"a", partition, headers=stamp(b"open", 0, 0, partition))
    assert upstream.flush(DEADLINE_SECONDS) == 0
    for partition in range(app.partitions):
        app.pay(partition, range(10), f"behind-{partition}")
    opened = time.time()
    blocked: list[Scrape] = []

    def looked() -> bool:
        now = told(used)
        if now is not None and now.total("pipeline_last_poll_timestamp_seconds") > opened + 1:
            blocked.append(now)
        return time.time() > opened + OPEN_SECONDS

    used.watch(looked, what="the transaction is open for a while")
    assert len(blocked) > 5
    assert {now.ready for now in blocked} == {"ready"}
    assert {now.total("pipeline_lag_records") for now in blocked} == {0}
    assert {now.total("pipeline_open_transaction_records", topic=app.topic) for now in blocked} == {
        11.0 * app.partitions
    }
    upstream.abort_transaction(DEADLINE_SECONDS)
    used.assert_recovered()
    assert not [row for row in app.written(app.settings.output.topics[0]) if b"never" in (row.value or b"")]


@pytest.mark.fault("A4")
def test_ranges_of_control_records_alone_are_passed_without_a_hot_loop(app: App) -> None:
    app.pay(0, range(10))
    client = Producer({"bootstrap.servers": app.bootstrap, "transactional.id": fresh("aborted"), **QUIET})
    client.init_transactions(DEADLINE_SECONDS)
    for number in range(200):
        client.begin_transaction()
        client.produce(app.topic, payment(b"aborted"), b"a", number % 2, headers=stamp(b"aborted", 0, number, 0))
        client.abort_transaction(DEADLINE_SECONDS)
    small = app.with_settings(source={"max_offsets_per_trigger": 100})
    ends = sum(app.ends().values())
    batches: list[Batch] = []

    def pay_once_more(job: Job, batch: Batch) -> None:
        batches.append(batch)
        if sum(report.commits[-1].rows for report in batch.reports if report.commits) and len(batches) > 1:
            job.stop.set()  # what was paid after all the markers has come
        elif app.lag() == 0:
            app.pay(1, range(10), "later")

    seen = small.run(pay_once_more, until_caught_up=False)
    assert sum(lane.counters.read for lane in seen.lanes.values()) == 20
    # By hundreds of offsets, one more where the last record is not in time, and one for what came later.
    assert len(batches) <= ends // 100 + 3
    app.run()
    assert app.lag() == 0
    app.assert_exact()


@pytest.mark.fault("A5")
def test_after_an_operator_has_accepted_a_loss_the_job_goes_on_and_counts_it(app: App) -> None:
    app.send(300)
    app.lose({0: 40})
    with pytest.raises(SafeStop, match=r"\[0\]: offsets 0 to 39 were deleted .* `pipeline provision --accept-loss`"):
        app.run()
    accept_loss(app.settings, lambda _: None)
    seen = app.run()
    assert {partition: lane.counters.lost for partition, lane in seen.lanes.items()} == {0: 40, 1: 0}
    app.assert_exact()


@pytest.mark.fault("A6")
def test_a_source_topic_that_was_deleted_while_the_job_was_stopped_stops_it_and_is_not_created(app: App) -> None:
    app.send(100)
    app.run()
    app.delete(app.topic)
    with pytest.raises(SafeStop) as stopped:
        app.run()
    assert (
        str(stopped.value)
        == f"source topic {app.topic} does not exist on {app.bootstrap}; check the name, or create it"
    )
    assert not Topics(app.bootstrap).describe([app.topic])


@pytest.mark.fault("A9")
def test_poison_in_every_partition_becomes_dead_letters_and_holds_up_nothing(app: App) -> None:
    client = Producer({"bootstrap.servers": app.bootstrap, **QUIET})
    injected = 0
    for partition in range(app.partitions):
        numbers = iter(range(1_000))

        def send(value: bytes | None, headers: Any = None, partition: int = partition, numbers: Any = numbers) -> None:
            own = stamp(b"till-%d" % partition, 0, 0, next(numbers))
            client.produce(app.topic, value, b"a", partition, headers=own if headers is None else headers)

        for value in UNDECODABLE:
            send(value)
            send(payment(b"sound"))
        for headers in broken_stamps(stamp(b"till", 0, 0, 999)):
            send(payment(b"unstamped"), headers)
            send(payment(b"sound"))
            injected += 1
        injected += len(UNDECODABLE)
    assert client.flush(DEADLINE_SECONDS) == 0
    seen = app.run()
    dead = [lane.counters.dead_letters for lane in seen.lanes.values()]
    assert dead[0] == dead[1]
    assert sum(dead[0].values()) * app.partitions == injected
    assert dead[0]["decode"] == len(UNDECODABLE)
    assert len(app.written(app.settings.output.dead_letter_topic)) == injected
    assert sum(lane.counters.written for lane in seen.lanes.values()) == injected, "each was followed by a sound one"
    app.assert_exact()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.fault("A10")
def test_a_job_that_is_told_to_stop_again_and_again_in_mid_batch_ends_well_each_time(
    proxied: ProxiedBroker, tmp_path: Path, evidence: Evidence
) -> None:
    app = new_app(proxied.bootstrap, tmp_path, transaction={"chunk_rows": 20})
    chance = random.Random(evidence.seed)  # noqa: S311  a schedule, not a secret
    middle = 0
    for number in range(STOPS):
        app.send(2_000, seed=evidence.seed + number)
        with app.start() as job:
            job.wait_for_open_transaction()
            due = time.monotonic() + chance.uniform(0, STOP_WITHIN_SECONDS)
            job.wait_for("the stop is due", lambda due=due: time.monotonic() > due)  # type: ignore[misc]
            job.send(signal.SIGTERM)
            asked = time.monotonic()
            assert job.wait() == 0, job.log
            assert time.monotonic() - asked < STOP_SECONDS
        evidence.restarts += 1
        assert not open_partitions(app.settings)
        middle += app.lag() > 0
    assert middle > STOPS // 2, "most stops were to fall into the middle"
    app.run()
    app.assert_exact()
