"""The log: one event is one line, pairs become fields, and what looks like a secret is never written."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.figures import settings_of

from pipeline.errors import BadSettings
from pipeline.observe import logs
from pipeline.observe.logs import JsonLines, KeyValues, masked
from pipeline.observe.progress import Batch, Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = [
    "password=hunter2",
    "sasl.password=hunter2 then",
    "{'sasl.password': 'hunter2', 'a': 1}",
    '{"ssl.key.password": "hunter2 with spaces hunter2"}',
    "api_key=hunter2,",
    "Authorization: Bearer hunter2",
    "token: hunter2",
    "client_secret = hunter2",
    'sasl.jaas.config=org.Plain required username="me" password="hunter2";',
    "https://me:hunter2@host/path",
    "bootstrap me:hunter2@host:9092",
]


def event(text: str, *args: object, **fields: Any) -> logging.LogRecord:
    """Return a log record."""
    return logging.makeLogRecord({"levelname": "INFO", "msg": text, "args": args, "created": 0.25, **fields})


def failed() -> dict[str, Any]:
    """Return the fields of a record that was written while an error was handled."""
    error = OSError("no route, password=hunter2")
    return {"exc_info": (OSError, error, None)}


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger back as it was."""
    logger, own = logging.getLogger(), logging.getLogger("pipeline")
    before = logger.handlers, logger.level, own.level
    yield logger
    logger.handlers, logger.level, own.level = before


def test_a_line_for_people_begins_with_time_and_level() -> None:
    line = KeyValues().format(event("batch=%d rows=%d", 3, 5))
    assert line == "time=1970-01-01T00:00:00.250Z level=info batch=3 rows=5"


def test_a_line_for_machines_has_the_fields_of_its_message() -> None:
    fields = json.loads(JsonLines().format(event("batch=%d seconds=%.3f level=x name=a-b done", 3, 1.5)))
    assert fields == {
        "batch": 3,
        "seconds": 1.5,
        "name": "a-b",
        "level": "info",
        "time": "1970-01-01T00:00:00.250Z",
        "message": "batch=3 seconds=1.500 level=x name=a-b done",
    }


@pytest.mark.parametrize("form", [KeyValues(), JsonLines()])
def test_an_event_is_one_line_whatever_its_text_holds(form: logging.Formatter) -> None:
    assert "\n" not in form.format(event("first=1\nlevel=error time=now forged\r\nlines"))


def test_a_forged_field_does_not_replace_time_and_level() -> None:
    fields = json.loads(JsonLines().format(event("level=error time=never x")))
    assert (fields["level"], fields["time"]) == ("info", "1970-01-01T00:00:00.250Z")


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_not_written(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert "***" in masked(text)
    for form in (KeyValues(), JsonLines()):
        assert "hunter2" not in form.format(event(text))


def test_what_is_no_secret_stays() -> None:
    for text in ("batch=3 rows=5", "at 127.0.0.1:9092, receipts [0]", "http://127.0.0.1:9108/metrics", "run=2 a@b"):
        assert masked(text) == text


def test_a_traceback_is_below_the_line_for_people_and_in_a_field_for_machines() -> None:
    text = KeyValues().format(event("watcher=x", **failed()))
    assert text.splitlines()[0].endswith("watcher=x")
    assert text.splitlines()[-1] == "OSError: no route, password=***"
    fields = json.loads(JsonLines().format(event("watcher=x", **failed())))
    assert fields["exception"].endswith("OSError: no route, password=***")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", ["text", "json"])
def test_libraries_are_heard_only_when_something_is_wrong(form: str) -> None:
    stream = io.StringIO()
    logs.set_up(form, stream)
    logging.getLogger("some.library").info("noise")
    logging.getLogger("some.library").warning("trouble")
    logging.getLogger("pipeline").info("batch=1")
    logging.getLogger("pipeline").debug("detail")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "trouble" in lines[0]
    assert "batch" in lines[1]


@pytest.mark.usefixtures("root")
def test_setting_up_twice_writes_nothing_twice() -> None:
    stream = io.StringIO()
    for _ in range(2):
        logs.set_up("text", stream)
    logging.getLogger("pipeline").info("batch=1")
    assert stream.getvalue().count("batch=1") == 1


def test_a_form_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(BadSettings, match=r"log\.format = 'xml': must be 'text' or 'json'"):
        settings_of(log={"format": "xml"})


@pytest.mark.usefixtures("root")
def test_a_batch_is_one_line_at_info() -> None:
    stream = io.StringIO()
    logs.set_up("json", stream)
    Observer().on_batch(Batch(7).done([]))
    [line] = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["batch"], fields["rows"]) == ("info", 7, 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields["time"])
