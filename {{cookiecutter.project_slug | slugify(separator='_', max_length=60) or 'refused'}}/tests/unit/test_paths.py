"""What tells the two paths of a job apart before Spark is asked anything: columns, remedies, and what is refused."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from tests.support.figures import lane
from tests.support.kafka import wait_until
from tests.support.reference import settings_for

from pipeline import cli_choice
from pipeline.errors import BadSettings, SafeStop
from pipeline.flow import path, preflight
from pipeline.flow.checkpoint import damaged, unwritable
from pipeline.flow.failures import checkpoint_failure
from pipeline.flow.path import check_columns, path_of, started
from pipeline.flow.shutdown import passed_on
from pipeline.flow.stretch import stretch_of
from pipeline.flow.transform import transform
from pipeline.flow.windows import windows as windows_of
from pipeline.lanes import provision
from pipeline.lanes.recall import Recalled
from pipeline.lanes.record import decode, encode
from pipeline.settings import build

if TYPE_CHECKING:
    from pipeline.settings import Settings

COLUMNS = {"id": "string", "at": "timestamp", "amount": "double", "_key": "binary", "_source": "struct<>"}


def shuffled(**sections: Any) -> Settings:
    """Return settings of the shuffled path."""
    return build({**settings_for().model_dump(), "spark": {"checkpoint": "x"}, **sections})


def windows(**given: Any) -> Settings:
    """Return settings of windows."""
    return shuffled(flow={"path": "windows"}, windows={"late": "drop", **given})


def dedup(**given: Any) -> Settings:
    """Return settings of dedup by any id."""
    return shuffled(dedup={"strategy": "window", **given})


def test_columns_that_are_there_are_taken() -> None:
    check_columns(windows(time="at"), COLUMNS)
    check_columns(dedup(id_column="id"), COLUMNS)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (windows(time="when"), "windows.time = 'when': the events have no such column; they have id, at, amount"),
        (windows(time="amount"), "windows.time = 'amount': the column is a double; it must be a timestamp"),
        (dedup(id_column="uuid"), "dedup.id_column = 'uuid': the events have no such column; they have id, at, amount"),
    ],
)
def test_a_column_that_cannot_serve_is_refused_with_those_that_are_there(settings: Settings, line: str) -> None:
    with pytest.raises(BadSettings) as refused:
        check_columns(settings, COLUMNS)
    assert str(refused.value).startswith(line)


@dataclass
class Calls:
    """Stands for Spark, its readers and writers: notes what it is asked."""

    noted: dict[str, Any] = field(default_factory=dict)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of all that needs a JVM."""
        monkeypatch.setattr(path, "stream", lambda _, __, offsets: ("stream", offsets))
        monkeypatch.setattr(path, "batch", lambda _, __, ranges: ("batch", ranges))
        monkeypatch.setattr(path, "as_rows", lambda frame: frame)
        monkeypatch.setattr(path, "write_batch", lambda *given: ["written", *given])
        monkeypatch.setattr(path, "Reference", lambda *_: self)
        monkeypatch.setattr(path, "Shuffled", self.shuffled)

    def shuffled(self, *given: object) -> Calls:
        """Stand for the shuffled path itself."""
        self.noted["function"] = given[2]
        return self

    def query(self, raw: object) -> object:
        """Stand for its streaming frame."""
        self.noted["query"] = raw
        return "frame"

    @property
    def conf(self) -> Any:
        """Spark's own settings."""
        return SimpleNamespace(set=self.noted.__setitem__)

    def bound(self, function: object) -> object:
        """Stand for a table that is bound to a function."""
        self.noted["function"] = function
        return function

    def before_batch(self, _: object) -> None:
        """Stand for the plan of a batch."""

    def take_over(self, run: int, offsets: object) -> dict[int, tuple[int, int]]:
        """Stand for a batch of which lane 1 was left unfinished."""
        self.noted["taken over"] = run, offsets
        return {1: (8, 9)}


RECALLED = {0: Recalled(encode(replace(lane(0, 5), start_offset=2)), 7), 1: Recalled(encode(lane(1, 8)), 7)}


def test_on_the_lanes_path_reading_goes_on_at_the_next_offsets_and_each_batch_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: Any = Calls()
    calls.patch(monkeypatch)
    codec: Any = None
    taken: Any = path_of(settings_for(), calls, codec)
    assert calls.noted["function"] is transform
    assert taken.frame("folder", RECALLED) == ("stream", {0: 5, 1: 8})
    lanes: Any = SimpleNamespace(recalled=RECALLED)
    said: list[str] = []
    raw: Any = "raw"
    written, *given = taken.write(raw, 3, lanes)
    assert (written, given[0], given[2], given[3]) == ("written", raw, lanes, calls.before_batch)
    # What an earlier run left is written by the plan that it had, so none is made for it.
    written, *given = taken.finish(4, lanes, said.append)
    assert (given[0], len(given), len(said)) == (("batch", {1: (8, 9)}), 3, 1)
    assert calls.noted["taken over"] == (4, {0: 5, 1: 8})


@pytest.mark.parametrize(("settings", "own"), [(windows(), windows_of), (dedup(), transform)])
def test_on_the_shuffled_path_reading_begins_where_all_lanes_began_and_the_file_is_that_of_the_path(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, own: object
) -> None:
    calls: Any = Calls()
    calls.patch(monkeypatch)
    codec: Any = None
    taken: Any = path_of(settings, calls, codec)
    assert taken.frame("folder", RECALLED) == "frame"
    assert calls.noted["query"] == ("stream", {0: 2, 1: 0})
    assert calls.noted["spark.sql.shuffle.partitions"] == "2"
    assert "RocksDB" in calls.noted["spark.sql.streaming.stateStore.providerClass"]
    assert taken.finish(4, SimpleNamespace(recalled=RECALLED), print) == []
    mine: Any = object()
    for function, given in ((own, None), (mine, mine)):
        taken = path_of(settings, calls, codec, given)
        taken.frame("folder", RECALLED)
        assert calls.noted["function"] is function


def test_what_spark_cannot_stream_is_one_line() -> None:
    def start() -> None:
        msg = "Sorting is not supported on streaming DataFrames\nSort [a ASC]\n+- ..."
        raise AnalysisException(msg)

    writer: Any = SimpleNamespace(start=start)
    with pytest.raises(SafeStop, match=r"^Spark cannot run this as a stream: Sorting is not supported .*transform.py$"):
        started(writer)


def test_nobody_is_told_to_delete_a_checkpoint_that_holds_state() -> None:
    assert "delete the checkpoint folder (x) and start again" in damaged("x", "metadata", "cut", holds_state=False)
    held = damaged("x", "metadata", "cut", holds_state=True)
    assert "delete" not in held
    assert "restore it from a copy" in held
    assert "name another folder" in unwritable("x", "full", holds_state=False)
    assert "another folder" not in unwritable("x", "full", holds_state=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] loading\nCaused by: java.io.EOFException: Stream ended\n\tat a.b",
            "checkpoint file x/state is damaged (EOFException: Stream ended): the state is in this folder alone",
        ),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] loading\nCaused by: java.net.ConnectException: refused", None),
        ("java.io.EOFException: Stream ended", None),
        ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match", "windows.py has changed what"),
    ],
)
def test_state_that_will_never_load_is_told_from_a_file_system_that_is_away(text: str, line: str | None) -> None:
    found = checkpoint_failure(text, windows())
    assert line in str(found) if line else found is None
    assert isinstance(found, SafeStop) == (line is not None)
    assert checkpoint_failure(text, settings_for()) is None


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [(settings_for(), "run `pipeline provision --accept-loss`"), (dedup(), "another app.id and checkpoint")],
)
def test_a_loss_can_be_accepted_on_the_lanes_path_alone(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, remedy: str
) -> None:
    log = SimpleNamespace(offsets=lambda *_, **__: {0: 5})
    monkeypatch.setattr(preflight, "Topics", lambda _: log)
    with pytest.raises(SafeStop, match=remedy):
        preflight.check_log(settings, {0: 3})


def test_provision_accepts_a_loss_on_the_lanes_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[bytes] = []
    monkeypatch.setattr(provision, "standing", lambda *_, **__: (lane(0, 3), 9))
    monkeypatch.setattr(provision, "fence", lambda *_: None)
    monkeypatch.setattr(provision, "write_record", lambda *given: wrote.append(given[3]))
    source: Any = None
    passed_over = provision._pass_over  # noqa: SLF001  the rest needs brokers
    with pytest.raises(SafeStop, match=r"a loss cannot be accepted: give the job another app\.id"):
        passed_over(dedup(), source, 0, 5, 1)
    assert not wrote
    assert passed_over(settings_for(), source, 0, 5, 1) == "lane 0: moved from offset 3 to 5, 2 offsets are lost"
    assert decode(wrote[0]).counters.lost == 2


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (settings_for(), "run `pipeline provision`, which adds the missing lanes"),
        (dedup(), "give the job another app.id"),
    ],
)
def test_a_source_that_grew_gets_more_lanes_on_the_lanes_path_alone(settings: Settings, remedy: str) -> None:
    topics: Any = None
    source: Any = SimpleNamespace(name="payments", partitions=3)
    checked = preflight.Checked(source, 2, 1, 1, topics, {}, settings.shuffled)
    with pytest.raises(preflight.PartitionsAdded, match=f"3 partitions, but only 2 lanes: .*{remedy}") as stop:
        checked.check_lanes()
    assert settings.shuffled != ("pipeline provision" in str(stop.value))


def test_provision_adds_no_lanes_to_a_job_that_has_run_on_the_shuffled_path(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = {0: False, 1: True}
    monkeypatch.setattr(provision, "_has_run", lambda _, lane, __: ran[lane])
    source: Any = SimpleNamespace(name="payments", partitions=3)
    refuse = provision._refuse_growth  # noqa: SLF001  the rest needs brokers
    with pytest.raises(SafeStop, match="has run with 2 lanes: results would change their lanes; give the job another"):
        refuse(dedup(), source, 2)
    ran[1] = False
    refuse(dedup(), source, 2)


def test_deliveries_are_not_compared_where_there_is_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_choice, "load", lambda _: windows())
    with pytest.raises(BadSettings, match="compare is for the lanes path"):
        cli_choice.compare(Path("pipeline.toml"))


def test_what_is_set_aside_has_room_for_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(provision, "_create", lambda _, new: made.setdefault(new.topic, new.config) and "created")
    output: Any = SimpleNamespace(describe=lambda _: {})
    late = windows(late="aside", late_topic="alerts")
    for settings, aside in ((late, {"dead", "alerts"}), (windows(late_topic="alerts"), {"dead"})):
        made.clear()
        provision._outputs(settings, output, {"max.message.bytes": "9"}, print)  # noqa: SLF001  the rest needs brokers
        assert {topic for topic, config in made.items() if config} == aside
        assert made.keys() == {"dead", "alerts", "receipts"}


def test_a_stretch_of_the_log_is_not_replayed_on_the_shuffled_path() -> None:
    with pytest.raises(BadSettings, match="replay is for the lanes path"):
        stretch_of(dedup(), "earliest", "latest", ["other"])


def test_a_stop_is_passed_on_to_tasks_while_the_driver_waits_for_them(tmp_path: Path) -> None:
    stop, stop_file = threading.Event(), tmp_path / "stop"
    with passed_on(stop, stop_file):
        assert not stop_file.exists()
        stop.set()
        wait_until(stop_file.exists, what="the tasks can see it")
    stop_file.unlink()
    with passed_on(stop, stop_file):
        assert stop_file.exists(), "asked for before"
