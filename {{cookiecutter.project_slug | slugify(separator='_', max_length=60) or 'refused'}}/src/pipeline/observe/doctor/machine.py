"""Checks of machine and settings: Python, Java, packages, jars, schema file, delivery, dedup. None needs a cluster."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from confluent_kafka import libversion

from pipeline.local.jars import jars, read_pins
from pipeline.local.java import VERSION_SECONDS, java
from pipeline.observe.doctor.finding import Finding, fail, ok, warn
from pipeline.observe.progress import COUNTED_TWICE, WEAKER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.observe.doctor.site import Site

OLDEST_PYTHON = (3, 11)
PACKAGES = ("pyspark", "confluent-kafka", "fastavro", "pyarrow", "prometheus-client", "pydantic", "typer", "rich")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:"
REINSTALL = "install the project's dependencies again: `make setup`"


def python(_: Site) -> Iterator[Finding]:
    """The interpreter is new enough."""
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        yield fail("Python", detail, f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    else:
        yield ok("Python", detail)


def java_version(_: Site) -> Iterator[Finding]:
    """There is a Java that Spark runs on; `java` itself refuses what is missing or too old."""
    path = java()
    run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    yield ok("Java", f"{(run.stderr or run.stdout).splitlines()[0]} at {path}")


def packages(_: Site) -> Iterator[Finding]:
    """Everything that is imported is installed."""
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield fail("packages", f"not installed: {', '.join(missing)}", REINSTALL)
    yield ok("packages", f"{', '.join(found)}, librdkafka {libversion()[0]}")


def connector(_: Site) -> Iterator[Finding]:
    """Spark and its Kafka connector are of one version, and the connector's jars are at hand."""
    conf = read_pins()["spark"]
    pinned = next(root.removeprefix(CONNECTOR) for root in conf.roots if root.startswith(CONNECTOR))
    spark = version("pyspark")
    if pinned != spark:
        detail = f"connector {pinned}, but pyspark {spark}"
        yield fail("Spark connector", detail, "pin the version of pyspark: see pipeline/local/jars.toml")
    elif conf.folder().exists():
        yield ok("Spark connector", f"{pinned}, {len(jars('spark'))} jars in {conf.folder()}")
    else:
        yield warn(
            "Spark connector", f"{pinned}, not fetched yet", "fetch the jars now, not at the first run: `make setup`"
        )


def schema(site: Site) -> Iterator[Finding]:
    """The schema file can be read as the job reads it."""
    from pipeline.flow.codec import codec_of  # noqa: PLC0415  a broken pyspark must not end the other checks

    codec = codec_of(site.settings)
    given = site.settings.codec
    file = "none (bytes)" if given.input == "bytes" else given.schema_file
    yield ok("schema", f"{file}: columns {', '.join(codec.columns.names)}")


def delivery(site: Site) -> Iterator[Finding]:
    """What was chosen is told; what is less than exactly-once is never taken for granted."""
    chosen = site.settings.delivery
    detail = f"{chosen.semantics}, visible by {chosen.atomicity}"
    if chosen.semantics in WEAKER:
        remedy = 'if that is not meant: delivery.semantics = "exactly-once"'
        yield warn("delivery", f"{detail}: {WEAKER[chosen.semantics]}", remedy)
    else:
        yield ok("delivery", detail)


def dedup(site: Site) -> Iterator[Finding]:
    """What the upstream sends twice is known again, but for windows: said out loud, since nothing is refused for it."""
    settings = site.settings
    if settings.flow.path == "windows":
        remedy = "if the upstream may repeat itself, let a job of its own dedup into the topic that this one reads"
        yield warn("dedup", f"none: {COUNTED_TWICE}", remedy)
    elif settings.upstream_dedup != "none":  # that there is none at least once, the line on delivery says
        yield ok("dedup", settings.upstream_dedup)
