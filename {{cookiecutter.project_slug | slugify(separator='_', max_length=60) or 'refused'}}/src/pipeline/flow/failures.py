"""Whatever ended a query, in one line.

Guarantee: what can be checked is checked again, so that the line names topic, partition and offsets; of a mistake in
the user's code it names the file and line, never a traceback through Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from py4j.protocol import Py4JError, Py4JJavaError

from pipeline.denied import ACLS
from pipeline.errors import Denied, PipelineError, SafeStop
from pipeline.flow.checkpoint import damaged
from pipeline.flow.preflight import check_log
from pipeline.lanes.token import RESET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.flow.preflight import Checked
    from pipeline.settings import Settings

DATA_LOSS = re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been (lost|missed)", re.IGNORECASE)
# By Java's client: the ACL is that of a reader, and the reason that of whoever refused the login.
FORBIDDEN = re.compile(r"(?P<resource>Topic|Group)AuthorizationException: ([^\n]*)")
REFUSED = re.compile(r"(?:Sasl|Ssl)AuthenticationException: (?P<reason>[^\n]*)")
TOPIC_GONE = re.compile(r"UnknownTopicOrPartition|UNKNOWN_TOPIC")
DISK = re.compile(r"No space left on device|Read-only file system|Disk quota exceeded|Permission denied")
SHARED = "CONCURRENT_STREAM_LOG_UPDATE"
# State that Spark cannot load: because of its files, not of a file system that is away for a while.
STATE = "CANNOT_LOAD_STATE_STORE"
STATE_FILES = re.compile(
    r"(?:CANNOT_READ_\w+|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|UNEXPECTED_FILE_SIZE|INVALID_CHANGE_LOG_READER_VERSION"
    r"|(?:Checksum|FileNotFound|EOF|Zip)Exception|RocksDBException: Corruption)[^\n]*"
)
STATE_CHANGED = re.compile(r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_\w+_FORMAT_VALIDATION_FAILURE")
# Spark was told to end while a batch was at work.
SHUT_DOWN = re.compile(r"SparkContext (?:was shut down|has been shutdown)|stopped SparkContext")
# Frames of these are not the user's.
LIBRARIES = re.compile(r"[/\\](pyspark|py4j)[/\\]")
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
# What a Java exception says of a failed task, or of its own cause, innermost last.
CAUSE = re.compile(r"(?:most recent failure: .*?\): |Caused by: )([\w.$]+(?:Exception|Error)\b.*)")
# What ended a query outside of its batches; the plan and the offsets follow.
QUERY = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?\s*=== Streaming Query", re.DOTALL)


@dataclass(frozen=True)
class Failure:
    """What ended a query, and what it says: Java is asked for that at once, while it may still be there to answer."""

    error: BaseException
    text: str | None  # none, if Java was gone by then

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Note what was raised."""
        unconnected = isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)
        try:
            return cls(error, None if unconnected else str(error))
        except (Py4JError, ConnectionError):
            return cls(error, None)

    @property
    def is_ours(self) -> bool:
        """Whether this program raised it: then no task runs any more."""
        return isinstance(self.error, PipelineError)

    @property
    def is_lost(self) -> bool:
        """Whether it is Spark itself that is gone, or was told to end, and not something in Spark that failed."""
        if self.is_ours:
            return False
        return self.text is None or (SHUT_DOWN.search(self.text) is not None and TRACEBACK not in self.text)


def failure_of(
    failure: Failure, settings: Settings, checked: Checked, next_offsets: Mapping[int, int]
) -> PipelineError:
    """The error to end the job with."""
    if isinstance(failure.error, PipelineError):
        return failure.error
    text = failure.text
    if text is None:
        return PipelineError(
            f"Spark's Java process is gone: killed, or out of memory (spark.driver_memory = "
            f"{settings.spark.driver_memory}); nothing is lost, start again"
        )
    try:
        if DATA_LOSS.search(text) or TOPIC_GONE.search(text):
            checked.watch()
            check_log(settings, next_offsets)
    except PipelineError as clearer:
        return clearer
    if denied := _denial(text, settings):
        return denied
    return checkpoint_failure(text, settings) or PipelineError(f"a batch failed: {failure_line(text)}")


def _denial(text: str, settings: Settings) -> Denied | None:
    if forbidden := FORBIDDEN.search(text):
        name = settings.source.topic if forbidden["resource"] == "Topic" else settings.group
        needs = f"Read on {forbidden['resource']} {name}"
        return Denied(f"Spark reads {settings.source.topic}: denied: {needs} is not allowed to this user; {ACLS}")
    if refused := REFUSED.search(text):
        who = f"cluster {settings.source.bootstrap} does not let {settings.security.principal} in"
        return Denied(f"Spark reads {settings.source.topic}: {who}: {refused['reason']}; check [security]")
    return None


def checkpoint_failure(text: str, settings: Settings) -> PipelineError | None:
    """The error, if it is the checkpoint that Spark cannot go on with."""
    folder = f"checkpoint folder ({settings.spark.checkpoint or 'temporary'})"
    if DATA_LOSS.search(text) and settings.shuffled:
        return SafeStop(
            f"Spark finds records of {settings.source.topic} missing that it must read to go on from its {folder}; "
            "restore them, or give the job another app.id and checkpoint, and provision it"
        )
    if DATA_LOSS.search(text):
        return SafeStop(
            f"Spark finds records of {settings.source.topic} missing: its checkpoint does not fit the log; "
            f"delete the {folder} and start again"
        )
    if settings.shuffled and (state := _state_failure(text, settings)):
        return state
    if SHARED in text:
        return PipelineError(
            f"another job writes to the {folder}: stop one of them, or give each its own in spark.checkpoint; "
            "nothing is lost, start again"
        )
    if TRACEBACK not in text and (disk := DISK.search(text)):  # the user's code may fail by a disk of its own
        return SafeStop(
            f"Spark cannot write ({disk[0]}): make room on, or allow access to, the disk of its {folder} "
            "or of the temporary folder, and start again; nothing is lost"
        )
    return None


def _state_failure(text: str, settings: Settings) -> SafeStop | None:
    """To start again would only fail again."""
    if STATE_CHANGED.search(text):
        own = "windows.py" if settings.flow.path == "windows" else "the type of dedup.id_column"
        return SafeStop(
            f"{own} has changed what it keeps: Spark's state in the checkpoint folder ({settings.spark.checkpoint}) is "
            f"of another shape; take the change back, {RESET}"
        )
    if STATE in text and (file := STATE_FILES.search(text)):
        return SafeStop(damaged(settings.spark.checkpoint, "state", " ".join(file[0].split()), holds_state=True))
    return None


def failure_line(text: str) -> str:
    """What a failed batch is about, from the text of whatever Spark raised."""
    if TRACEBACK in text:
        last = text.rpartition(TRACEBACK)[2]
        said = " ".join(line.strip() for line in last.splitlines() if line.strip() and not line.startswith(" "))
        frames = [(frame["file"], frame["line"]) for frame in FRAME.finditer(last)]
        return f"{said}{place(frames)}"
    causes = CAUSE.findall(text) or QUERY.findall(text) or text.strip().splitlines() or ["no reason given"]
    return " ".join(str(causes[-1]).split())


def place(frames: Sequence[tuple[str, object]]) -> str:
    """The innermost of the user's own frames, in brackets."""
    own = [(Path(file).name, line) for file, line in frames if not LIBRARIES.search(file)]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
