"""Reference data on a real broker: the table, the plans, and a job that is killed between two lanes of a batch."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.support.job import App, enriched, new_app, spark_kept
from tests.support.kafka import DEADLINE_SECONDS, QUIET, create_topic, fresh

from pipeline.errors import Replaced, SafeStop
from pipeline.flow.job import Job
from pipeline.flow.ranges import Range
from pipeline.flow.reference import Reference
from pipeline.flow.table import Table
from pipeline.lanes.plans import Plan, Plans
from pipeline.lanes.provision import provision
from pipeline.local.gate import Gate
from pipeline.local.processes import signal_all, tree
from pipeline.observe.progress import Observer

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.local.broker import Broker

NO_SPARK: Any = None


@pytest.fixture
def app(broker: Broker, tmp_path: Path) -> App:
    """Return a fresh app with a reference topic of two partitions, compacted."""
    accounts = create_topic(broker.bootstrap, fresh("accounts"), 2, {"cleanup.policy": "compact"})
    fields = [{"name": "tier", "type": "int"}]
    schema = tmp_path / "account.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Account", "fields": fields}), encoding="utf-8")
    return new_app(broker.bootstrap, tmp_path, reference={"topic": accounts, "schema_file": str(schema)})


def tell(app: App, tiers: dict[str, int | None]) -> None:
    """Write what is known of accounts; None is a tombstone."""
    client = Producer({"bootstrap.servers": app.bootstrap, **QUIET})
    for account, tier in tiers.items():
        client.produce(app.settings.reference.topic, None if tier is None else json.dumps({"tier": tier}), account)
    assert client.flush(DEADLINE_SECONDS) == 0


def seen(app: App) -> dict[str, int | None]:
    """Return the tier by which each payment was enriched."""
    receipts, _ = app.settings.output.topics
    values = [json.loads(record.value or b"") for record in app.written(receipts)]
    assert len({value["id"] for value in values}) == len(values), "a payment was written twice"
    return {value["id"]: value.get("tier") for value in values}


def test_the_table_is_the_newest_value_of_each_key_and_can_be_built_again_at_a_position_of_the_past(app: App) -> None:
    tell(app, {"a": 1, "b": 1, "c": 1})
    table = Table(app.settings)
    table.refresh()
    then, digest = dict(table.position), table.digest
    tell(app, {"a": 2, "b": None})
    table.refresh()
    assert table.items == {b"a": b'{"tier": 2}', b"c": b'{"tier": 1}'}
    assert table.digest != digest
    version = table.version
    table.refresh()
    assert table.version == version, "nothing new was told"
    table.rebuild(then)
    assert table.items == dict.fromkeys((b"a", b"b", b"c"), b'{"tier": 1}')
    assert table.digest == digest


def test_a_table_of_more_keys_than_allowed_stops_the_job(app: App) -> None:
    tell(app, {"a": 1, "b": 1})
    small = app.with_settings(reference={"max_keys": 1})
    with pytest.raises(SafeStop, match=r"has 2 keys, but reference\.max_keys = 1"):
        Table(small.settings).refresh()


def test_of_two_runs_the_older_plans_nothing_more(app: App) -> None:
    older, newer = Plans(app.settings), Plans(app.settings)
    assert older.take_over(1) == Plan()
    older.write(Plan(first={0: 0}, until={0: 5}))
    assert newer.take_over(2).until == {0: 5}
    with pytest.raises(Replaced, match="replaced by run 2"):
        older.write(Plan(first={0: 5}, until={0: 10}))


def test_only_a_batch_that_some_lane_has_begun_is_finished_by_its_plan(app: App) -> None:
    tell(app, {"a": 1})
    first = Reference(app.settings, NO_SPARK)
    assert first.take_over(1, {0: 0, 1: 0}) == {}
    first.before_batch([Range(0, 0, 5), Range(1, 0, 7)])
    tell(app, {"a": 2})
    assert Reference(app.settings, NO_SPARK).take_over(2, {0: 0, 1: 0}) == {}
    assert Reference(app.settings, NO_SPARK).take_over(3, {0: 5, 1: 0}) == {1: (0, 7)}
    assert Reference(app.settings, NO_SPARK).take_over(4, {0: 5, 1: 7}) == {}


def test_at_least_once_an_unfinished_batch_counts_as_begun_since_its_output_comes_before_its_progress(app: App) -> None:
    tell(app, {"a": 1})
    weaker = app.with_settings(delivery={"semantics": "at-least-once"})
    first = Reference(weaker.settings, NO_SPARK)
    assert first.take_over(1, {0: 0, 1: 0}) == {}
    first.before_batch([Range(0, 0, 5), Range(1, 0, 7)])
    assert Reference(weaker.settings, NO_SPARK).take_over(2, {0: 0, 1: 0}) == {0: (0, 5), 1: (0, 7)}
    at_most = app.with_settings(delivery={"semantics": "at-most-once"})
    assert Reference(at_most.settings, NO_SPARK).take_over(3, {0: 0, 1: 0}) == {}
    assert Reference(weaker.settings, NO_SPARK).take_over(4, {0: 5, 1: 7}) == {}


def test_a_batch_whose_table_cannot_be_built_again_stops_the_job(app: App) -> None:
    plans = Plans(app.settings)
    plans.take_over(1)
    plans.write(Plan(first={0: 0, 1: 0}, until={0: 5, 1: 5}, reference={0: 0, 1: 0}, digest="of what is gone"))
    with pytest.raises(SafeStop, match=r"was compacted since a batch was cut off.*min.compaction.lag.ms"):
        Reference(app.settings, NO_SPARK).take_over(2, {0: 5, 1: 0})


def test_a_job_without_its_plans_is_told_to_provision(broker: Broker, tmp_path: Path, app: App) -> None:
    late = new_app(broker.bootstrap, tmp_path)
    late = late.with_settings(reference=app.settings.reference.model_dump())
    with pytest.raises(SafeStop, match=r"plans does not exist .*run `pipeline provision`"):
        late.run(transform=enriched(late.settings))
    provision(late.settings, lambda _: None)


def test_the_table_is_refreshed_between_batches_and_a_tombstone_deletes(app: App) -> None:
    tell(app, {"a": 1})
    for number, tier in enumerate((1, 2, None)):
        tell(app, {"a": tier})
        app.pay(0, range(number, number + 1))
        app.run(transform=enriched(app.settings))
    assert seen(app) == {"0": 1, "1": 2, "2": None}


@pytest.mark.long
@pytest.mark.fault("K3")
def test_the_rest_of_a_batch_that_a_crash_cut_off_is_enriched_as_its_first_part(app: App, tmp_path: Path) -> None:
    tell(app, {"a": 1})
    app.pay(0, range(5))
    app.pay(1, range(100, 105), "other")
    gate = Gate(tmp_path / "gate", "before commit", nth=2)
    with app.start(enriched, environ=gate.environ) as job:
        job.wait_for("one lane is held", gate.holds)
        job.wait_for_progress(5)  # and the other has committed
        signal_all(tree(job.pid), signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL
    half = seen(app)
    assert len(half) == 5, "one lane of two"
    tell(app, {"a": 2})
    app.pay(0, range(5, 8))
    stopped = Job(app.settings, Observer([]), transform=enriched(app.settings))
    stopped.stop.set()
    with spark_kept():
        stopped.run()
    assert seen(app) == half, "a stop reaches the tasks that finish the batch as well"
    app.run(transform=enriched(app.settings))
    tiers = seen(app)
    assert {name: tier for name, tier in tiers.items() if int(name) < 5 or int(name) >= 100} == dict.fromkeys(
        [*map(str, range(5)), *map(str, range(100, 105))], 1
    )
    assert {name: tiers[name] for name in ("5", "6", "7")} == dict.fromkeys(("5", "6", "7"), 2)
