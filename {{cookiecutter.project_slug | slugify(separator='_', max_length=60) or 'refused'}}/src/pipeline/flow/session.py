"""The Spark session, with the settings the guarantee and the speed rest on.

Guarantee: no speculation (two attempts of a task would fence each other), retries also on a local master, and no
adaptive planning that could change a batch's plan behind the whitelist.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import chdir, contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipeline.errors import BadSettings
from pipeline.flow.checkpoint import written_by
from pipeline.flow.compiler import give_way
from pipeline.flow.crossing import as_it_comes
from pipeline.flow.names import keep_names
from pipeline.local.classes import java_options as archived_classes
from pipeline.local.jars import jars
from pipeline.local.java import java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.settings import Settings

INSTALLED = (sys.prefix, sys.base_prefix)
LOOPBACK = "127.0.0.1"
# What a task holds outside the heap at most of rows that cross to Python: two stages, each with its rows and, while
# they grow, half as much; one of them with many rows, if large ones come where all were small (`flow/crossing.py`).
TASK_MB = 1024
# The one value that is no bound: with any other Arrow counts the batch anew for each of its rows, half of Spark's time.
NO_BOUND = "2147483647"
# Java's best compiler is called four times later than by default. What runs for every record gets there in seconds all
# the same; for all else, on few cores, it would take as much time as the records themselves.
COMPILER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
# One log for all: else the whole stack is walked for each logger that is asked for, to see by whose class, with every
# fetch of every lane.
LOGGERS = "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
# Hadoop starts a program to set the mode of each file on a local disk, four times in a batch: the short way to start
# one. Other systems do not know it.
PROGRAMS = "-Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""
# Java's simplest collector takes the least time of few cores; a heap larger than this would stand still for too long.
SIMPLE_COLLECTOR, SIMPLE_MB = "-XX:+UseSerialGC", 2048
# What Spark remembers of jobs and plans, for pages that are switched off here; and how often it has Java collect what
# was dropped, so that the heap does not fill with it first.
SHORT_MEMORY = {
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.cleaner.periodicGC.interval": "10min",
}
# Local masters do not retry tasks unless told how often one may fail.
LOCAL_WITHOUT_RETRIES = re.compile(r"^local(\[[^,\]]*\])?$")


def session(settings: Settings, java_options: str = "") -> SparkSession:
    """Start Spark, or say in one line what is missing; `java_options` are for whoever studies the start itself."""
    master = settings.spark.master
    if LOCAL_WITHOUT_RETRIES.match(master):
        msg = f"spark.master = {master!r}: a local master repeats a failed task only if told: write local[4,4]"
        raise BadSettings(msg)
    # A failed batch is told once, by the job; py4j would show it with its traceback, also by the logger of all.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_by_py4j)
    program, local = java(), master.startswith("local")
    os.environ["JAVA_HOME"] = str(Path(program).resolve().parent.parent)
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers must find what the driver found
        java_options = java_options or archived_classes(program)
        java_options += f" {PROGRAMS} {collector(settings.spark.driver_memory)} {outside_heap(master)}"
    # As a URI: a space in the path would end the option.
    log4j = Path(str(files("pipeline.flow").joinpath("log4j2.properties"))).as_uri()
    builder = (
        SparkSession.builder.master(master)
        .appName(settings.app.id)
        .config("spark.driver.memory", settings.spark.driver_memory)
        .config(
            "spark.driver.extraJavaOptions", f"{COMPILER} {LOGGERS} -Dlog4j2.configurationFile={log4j} {java_options}"
        )
        .config("spark.speculation", "false")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Of each column that is described Spark would note the line it comes from, by several calls into Java.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", NO_BOUND)
        .config("spark.sql.streaming.stopTimeout", "10s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # The text of each plan, which nobody reads without the UI: as short as it can be.
        .config("spark.sql.ui.explainMode", "simple")
    )
    for name, value in (SHORT_MEMORY | as_it_comes() | written_by(settings)).items():
        builder = builder.config(name, value)
    connector = [str(jar) for jar in jars("spark")]
    if not local:
        builder = builder.config("spark.jars", ",".join(connector))
    else:
        builder = (
            # On the path of Java itself: what Spark loads by a loader of its own is not taken from the archive.
            builder.config("spark.driver.extraClassPath", os.pathsep.join(connector))
            .config("spark.driver.bindAddress", LOOPBACK)
            .config("spark.driver.host", LOOPBACK)
            .config("spark.python.daemon.module", "pipeline.flow.daemon")
        )
    with chdir(_scratch()), _interrupt_kept():
        spark = builder.getOrCreate()
    keep_names(spark)
    _without_java(spark)
    if local:
        give_way(spark)
    return spark


def collector(memory: str) -> str:
    """Java's option for a heap of this size; none leaves the choice to Java."""
    megabytes = int(memory[:-1]) * {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}[memory[-1].lower()]
    return SIMPLE_COLLECTOR if megabytes <= SIMPLE_MB else ""


def outside_heap(master: str) -> str:
    """Java's option for what all tasks of a local master hold; as it comes, Java allows them as much as its heap."""
    slots = master.removeprefix("local[").partition(",")[0]
    tasks = int(slots) if slots.isdecimal() else os.cpu_count() or 1
    return f"-XX:MaxDirectMemorySize={TASK_MB * max(tasks, 2)}m"


@contextmanager
def _interrupt_kept() -> Iterator[None]:
    """Leave Ctrl-C to whoever had it: PySpark takes it at each start, and answers it with a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():  # elsewhere Python lets nobody take it
        signal.signal(signal.SIGINT, handler)


def _not_by_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _without_java(spark: SparkSession) -> None:
    """Of a Java that ends first, killed or told to stop with all of the group, the job tells: no traceback here."""
    server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001  it has no public face
    shown = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), (EOFError, ConnectionError)):
            shown(request, address)

    server.handle_error = handle_error


@cache
def _scratch() -> str:
    """The working folder of the JVM and its workers: Spark 4.0 leaves a folder `artifacts` in it."""
    folder = tempfile.mkdtemp(prefix="pipeline-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # What the driver imports from elsewhere than its installation must be found from there as well.
    own = [str(Path(entry).absolute()) for entry in sys.path if entry and not entry.startswith(INSTALLED)]
    os.environ["PYTHONPATH"] = os.pathsep.join(own)
    return folder


def stop_spark(spark: SparkSession) -> None:
    """End Spark; one that is gone already needs no more."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def check_session(spark: SparkSession) -> None:
    """What a submitted job's own configuration may have changed."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        msg = "spark.speculation = true: two attempts of one task would fence each other; switch it off"
        raise BadSettings(msg)
