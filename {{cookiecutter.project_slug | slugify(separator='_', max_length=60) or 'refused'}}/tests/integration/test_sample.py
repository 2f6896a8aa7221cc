"""Sample events for the local stack: a topic that is made once, and payments that a pipeline can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.kafka import fresh, read_committed
from tests.support.lanes import settings_for
from tests.support.program import settings_file

from pipeline.lanes.topics import Topics
from pipeline.local import sample

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pipeline.local.broker import Broker


def test_the_topic_is_created_once_and_filled_as_often_as_wanted(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = fresh("sample")
    file = str(settings_file(tmp_path, settings_for(broker.bootstrap, topic)))

    for _ in range(2):
        assert sample.main(["create", "--settings", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"topic {topic}: created with {sample.PARTITIONS} partitions",
        f"topic {topic}: exists",
    ]
    assert Topics(broker.bootstrap).one(topic, "topic").partitions == sample.PARTITIONS

    assert sample.main(["send", "--payments", "400", "--seconds", "0", "--settings", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "400 payments sent"
    assert len(read_committed(broker.bootstrap, topic)) > 400, "payments, and what goes wrong upstream"


def test_a_missing_topic_is_one_line_and_an_exit_code(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(settings_file(tmp_path, settings_for(broker.bootstrap, fresh("missing"))))
    assert sample.main(["send", "--settings", file]) == 1
    assert "no such topic" in capsys.readouterr().err
