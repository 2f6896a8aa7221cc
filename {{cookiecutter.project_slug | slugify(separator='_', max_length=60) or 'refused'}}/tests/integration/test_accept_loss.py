"""Source records that retention deleted unread: the job stops, and goes on only by an operator's word."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.kafka import DEADLINE_SECONDS, QUIET
from tests.support.lanes import App, fill, leave_open, provisioned
from tests.support.program import settings_file
from typer.testing import CliRunner

from pipeline import cli
from pipeline.errors import PipelineError, SafeStop
from pipeline.flow.preflight import check_log
from pipeline.kafka import Fenced
from pipeline.lanes import provision
from pipeline.lanes.provision import accept_loss
from pipeline.lanes.takeover import standing
from pipeline.observe.audit import audit, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.lanes.record import LaneRecord
    from pipeline.local.broker import Broker
    from pipeline.observe.audit.records import Expected

RECORDS = 100


@pytest.fixture
def app(broker: Broker) -> App:
    """Return an app with two lanes and a hundred source records in the first one, not yet read."""
    made = provisioned(broker.bootstrap, partitions=2)
    stamps = [("producer-id", b"upstream"), ("producer-epoch", b"0"), ("txn-id", b"0")]
    fill(
        broker.bootstrap,
        made.source.name,
        [(b"key", b"%d" % number, [*stamps, ("seq", b"%d" % number)]) for number in range(RECORDS)],
    )
    return made


def delete_below(app: App, offset: int) -> None:
    """Do what retention does."""
    admin = AdminClient({"bootstrap.servers": app.settings.source.bootstrap, **QUIET})
    place = TopicPartition(app.source.name, 0, offset)
    admin.delete_records([place])[place].result(DEADLINE_SECONDS)


def next_offsets(app: App) -> dict[int, int]:
    """Return where the lanes stand."""
    return {partition: app.lane(partition).next_offset for partition in range(2)}


def accepted(app: App) -> list[str]:
    """Accept the loss, and return what was said."""
    said: list[str] = []
    accept_loss(app.settings, said.append)
    return said


def test_records_that_were_deleted_unread_stop_the_job_with_topic_partition_offsets_and_remedy(app: App) -> None:
    app.write(0, 30)
    delete_below(app, 30)
    check_log(app.settings, next_offsets(app))
    delete_below(app, 50)
    lost = rf"source topic {app.source.name} \[0\]: offsets 30 to 49 were deleted .* `pipeline provision --accept-loss`"
    with pytest.raises(SafeStop, match=lost):
        check_log(app.settings, next_offsets(app))


@pytest.mark.fault("A5")
def test_accepting_the_loss_moves_the_lane_to_where_its_log_begins_and_counts_it(app: App) -> None:
    app.write(0, 30)
    delete_below(app, 50)
    before = app.lane()
    said = accepted(app)
    after = app.lane()
    assert said[0] == "lane 0: moved from offset 30 to 50, 20 offsets are lost"
    assert (after.next_offset, after.counters.lost) == (50, 20)
    assert (after.run, after.start_offset, after.producers) == (before.run, before.start_offset, before.producers)
    assert (after.counters.read, after.counters.written) == (30, 30)
    check_log(app.settings, next_offsets(app))


def test_a_lane_that_lost_nothing_is_left_alone(app: App) -> None:
    delete_below(app, 50)
    said = accepted(app)
    assert said[1] == "lane 1: nothing is lost, it stands at offset 0, the log begins at 0"
    assert len(app.lane_records(1)) == 1
    assert app.lane(1).counters.lost == 0


def test_accepting_twice_changes_nothing(app: App) -> None:
    delete_below(app, 50)
    accepted(app)
    once, end = app.lane_records(), app.recalled().end
    said = accepted(app)
    assert said[0] == "lane 0: nothing is lost, it stands at offset 50, the log begins at 50"
    assert app.lane_records() == once
    assert app.recalled().end == end


def test_a_second_loss_adds_to_the_first_and_what_is_there_is_written_once(app: App) -> None:
    app.write(0, 30)
    delete_below(app, 50)
    accepted(app)
    app.write(50, 60)
    delete_below(app, 75)
    accepted(app)
    app.write(75, RECORDS)
    assert app.lane().counters.lost == 20 + 15
    assert app.written() == [*range(30), *range(50, 60), *range(75, RECORDS)]


def test_a_writer_that_still_holds_the_lane_is_shut_out(app: App) -> None:
    app.write(0, 30)
    delete_below(app, 50)
    zombie = leave_open(app)
    accepted(app)
    with pytest.raises(Fenced):
        zombie.commit()
    assert app.lane().counters.lost == 20
    assert app.written() == [*range(30)]


def test_a_job_that_moved_the_lane_meanwhile_lost_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    delete_below(app, 50)
    calls = 0

    def looked_at_too_early(*lane: Any) -> tuple[LaneRecord, int]:
        nonlocal calls
        calls += 1
        found = standing(*lane)
        if calls == 1:  # a job that had read the records before they were deleted commits them now
            app.write(0, 60)
        return found

    monkeypatch.setattr(provision, "standing", looked_at_too_early)
    assert accepted(app)[0] == "lane 0: nothing is lost, it stands at offset 60, the log begins at 50"
    assert (app.lane().next_offset, app.lane().counters.lost) == (60, 0)


def test_a_recall_that_is_out_of_date_is_not_believed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.write(0, 30)
    delete_below(app, 50)
    calls = 0

    def deposed(*lane: Any) -> tuple[LaneRecord, int]:
        nonlocal calls
        calls += 1
        found, end = standing(*lane)
        return found, end - 2 if calls == 2 else end

    monkeypatch.setattr(provision, "standing", deposed)
    accepted(app)
    assert calls > 3
    assert [lane.counters.lost for lane in app.lane_records()] == [0, 0, 20]


def test_the_audit_takes_an_accepted_loss_for_a_remark(app: App) -> None:
    delete_below(app, 40)
    accepted(app)
    app.write(40, RECORDS)
    result = audit(app.settings, lambda: expected(app, 40))
    assert result.exact, result.remarks()
    assert "lost to retention, accepted: 40 offsets" in result.remarks()
    assert result.expected == result.found == RECORDS - 40
    assert ranges(app.settings) == {0: (40, RECORDS), 1: (0, 0)}


def test_the_audit_still_ends_where_records_that_were_read_are_gone(app: App) -> None:
    app.write(0, 30)
    delete_below(app, 50)
    accepted(app)
    app.write(50, RECORDS)
    with pytest.raises(
        PipelineError, match=re.escape(f"{app.source.name}, partition 0: retention took the offsets 0 to 49")
    ):
        audit(app.settings, lambda: expected(app, 50))


def expected(app: App, first: int) -> Iterator[Expected]:
    """Say what the rows of the tests are made of."""
    return ((0, offset, [app.output(offset)]) for offset in range(first, RECORDS))


def test_the_command_provisions_accepts_and_tells_machines_what_it_did(app: App, tmp_path: Path) -> None:
    delete_below(app, 50)
    file = settings_file(tmp_path, app.settings)
    plain = CliRunner().invoke(cli.app, ["provision", "-s", str(file), "--json"])
    assert plain.exit_code == 0
    assert "lane 0: stands at offset 0" in json.loads(plain.stdout)["done"]
    assert app.lane().counters.lost == 0
    done = CliRunner().invoke(cli.app, ["provision", "-s", str(file), "--accept-loss", "--json"])
    assert done.exit_code == 0
    assert "lane 0: moved from offset 0 to 50, 50 offsets are lost" in json.loads(done.stdout)["done"]
    assert app.lane().counters.lost == 50
