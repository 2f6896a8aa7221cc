"""Spark's checkpoint: a hint that may be deleted, old, or shared, but never ahead of Kafka.

Guarantee: a checkpoint from which Spark would begin behind the next offset of some lane stops the job at once. The lane
writer would notice only with the next record, and until then the job would look caught up. A folder that cannot be
written, and a file that Spark could not read, stop it as well, by name.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from pipeline.errors import SafeStop
from pipeline.lanes.token import RESET
from pipeline.rules import URI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pipeline.settings import Settings

# More than a disk has left that is full: a smaller file might find room in a block that is already taken.
PROBE_BYTES = 8_192
PROBE = ".probe"
LOCAL = "file://"
# As Spark comes, it starts several programs for each file on a local disk, to set and to read its mode: of the 200 ms
# that two files of a batch took, this leaves 70.
QUICK = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
}
# Spark's notes of its progress beside the batches instead of in them, and few: nobody goes on from a temporary folder.
# The last of the options says that the sink needs no such notes, which Spark believes of its own sinks only.
BESIDE = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "60000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


def written_by(settings: Settings) -> dict[str, str]:
    """What Spark writes the checkpoint with: its own way where that holds state, or is on another file system."""
    is_local = location(settings, scratch="").startswith("file:")
    return QUICK if is_local and not settings.shuffled else {}


def noted_by(settings: Settings, *, until_caught_up: bool) -> dict[str, str]:
    """How a stream notes its progress. Beside its batches there would be gaps, from which other runs cannot go on."""
    return {} if settings.spark.checkpoint or until_caught_up else BESIDE


def location(settings: Settings, scratch: str) -> str:
    """The given place, or a temporary one, as a URI.

    A plain path is the driver's own: without its scheme it would be looked for in the cluster's default file system
    (HDFS on YARN), and relative to the folder of the JVM.
    """
    given = settings.spark.checkpoint or f"{scratch}/checkpoint"
    return given if URI.match(given) else f"{LOCAL}{Path(given).absolute()}"


def check_checkpoint(spark: SparkSession, folder: str, settings: Settings, next_offsets: Mapping[int, int]) -> None:
    """Look for room and for damage, and compare where Spark would begin with where the lanes stand."""
    files = Files(spark, folder)
    shown = files.shown
    files.probe()
    begins = files.start().get(settings.source.topic, {})
    for partition, offset in sorted(next_offsets.items()):
        begin = begins.get(str(partition), 0)
        if begin > offset:
            msg = (
                f"lane {settings.transactional_id(partition)} stands at offset {offset}, but the checkpoint goes on at "
                f"{begin}: it is ahead of Kafka; delete its folder ({shown}) and start again"
            )
            raise SafeStop(msg)


class Files:
    """The checkpoint as Spark sees it: through Hadoop's file systems, which have no Python face."""

    def __init__(self, spark: SparkSession, folder: str, *, holds_state: bool = False) -> None:
        """Nothing is read yet; a folder that `holds_state` is never to be deleted."""
        self._holds_state = holds_state
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001
        self._folder = folder
        self.shown = folder.removeprefix(LOCAL)  # as a person would type it
        configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files = self._path(folder).getFileSystem(configuration)

    def probe(self) -> None:
        """Write a file and delete it: a disk that is full or read-only would fail the first batch."""
        path = self._path(self._folder, PROBE)
        try:
            stream = self._files.create(path, True)  # noqa: FBT003  overwrite; Java has no named arguments
            try:
                stream.write(bytes(PROBE_BYTES))
            finally:
                stream.close()
            self._files.delete(path, False)  # noqa: FBT003  not recursively
        except Py4JJavaError as error:
            msg = unwritable(self.shown, _cause(error), holds_state=self._holds_state)
            with suppress(Py4JJavaError):
                self._files.delete(path, False)  # noqa: FBT003
            raise SafeStop(msg) from error

    def start(self) -> dict[str, dict[str, int]]:
        """The offsets behind the last batch that Spark noted as done, by topic and partition; empty if there is none.

        Whatever else Spark reads at its start is read as well.
        """
        if self._files.exists(self._path(self._folder, "metadata")):
            self._read("metadata", lines=1)
        planned, done = self._newest("offsets"), self._newest("commits")
        if done is not None:
            self._read(f"commits/{done}", lines=1, version=True)
        if planned is not None:
            self._offsets(planned)
        if done is None or not self._files.exists(self._path(self._folder, f"offsets/{done}")):
            return {}
        return self._offsets(done)

    def query_id(self) -> str:
        """The id of the query whose checkpoint this is; empty if there is none yet."""
        if not self._files.exists(self._path(self._folder, "metadata")):
            return ""
        return str(self._read("metadata", lines=1)[0]["id"])

    def planned(self, batch: int) -> list[dict[str, Any]] | None:
        """What Spark noted of a batch before it began: watermark, time and settings, then the offsets of its source."""
        if not self._files.exists(self._path(self._folder, f"offsets/{batch}")):
            return None
        return self._read(f"offsets/{batch}", lines=2, version=True)

    def _offsets(self, batch: int) -> dict[str, dict[str, int]]:
        """A batch's line for each source, behind its metadata: there is one."""
        return self._read(f"offsets/{batch}", lines=2, version=True)[-1]

    def _newest(self, log: str) -> int | None:
        folder = self._path(self._folder, log)
        if not self._files.exists(folder):
            return None
        names = [file.getPath().getName() for file in self._files.listStatus(folder)]
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _read(self, name: str, *, lines: int, version: bool = False) -> list[dict[str, Any]]:
        """The JSON objects of a file, one on each line; in Spark's logs a version stands before them."""
        path = self._path(self._folder, name)
        try:
            stream = self._files.open(path)
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
            found = [json.loads(line) for line in text.splitlines()[int(version) :]]
            if len(found) < lines or not all(isinstance(line, dict) for line in found):
                msg = f"{len(found)} of {lines} lines"
                raise ValueError(msg)  # noqa: TRY301  told below, as any other damage
        except (Py4JJavaError, ValueError) as error:
            msg = damaged(self.shown, name, _cause(error), holds_state=self._holds_state)
            raise SafeStop(msg) from error
        return found

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(*parts)


def unwritable(folder: str, cause: str, *, holds_state: bool) -> str:
    """The line for a folder without room."""
    other = "" if holds_state else ", or name another folder in spark.checkpoint; nothing is lost by that"
    return f"checkpoint folder ({folder}) cannot be written ({cause}): make room for it, or allow it{other}"


def damaged(folder: str, name: str, cause: str, *, holds_state: bool) -> str:
    """The line for a file that Spark could not read; where it holds state, deleting it would lose all of that."""
    to_do = f"nothing is lost; delete the checkpoint folder ({folder}) and start again"
    if holds_state:
        to_do = f"the state is in this folder alone; restore it from a copy, {RESET}"
    return f"checkpoint file {folder}/{name} is damaged ({cause}): {to_do}"


def _cause(error: Exception) -> str:
    """What Java, or the JSON reader, has to say, on one line."""
    said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return " ".join(said.split())
