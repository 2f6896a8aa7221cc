"""The threads of Java's best compiler give way, and no others do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pipeline.flow import compiler
from pipeline.flow.compiler import BEST_COMPILER, NICE, give_way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")


def java(spark: SparkSession) -> Path:
    """Where Linux tells of Java's threads."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001  Java has no other face
    assert jvm is not None
    return Path(compiler.THREADS.format(jvm.java.lang.ProcessHandle.current().pid()))


def test_the_best_compiler_is_nice_and_all_else_is_not(spark: SparkSession) -> None:
    give_way(spark)
    give_way(spark)
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for thread in java(spark).iterdir():
        if (thread / "comm").exists():
            is_best = (thread / "comm").read_bytes().strip() == BEST_COMPILER
            found[is_best].add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    # Tests run Spark without this compiler, unless told: then there is nobody to give way.
    assert found[True] <= {max(NICE, own)}
    assert own in found[False]


def test_threads_of_that_name_become_nice_and_what_is_nicer_stays_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = {11: (BEST_COMPILER, 0), 12: (BEST_COMPILER, NICE + 5), 13: (b"C1 CompilerThre", 0), 14: (b"\xc3", 0)}
    for number, (name, _) in threads.items():
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_bytes(name + b"\n")
    (tmp_path / "15").mkdir()  # a thread that has ended
    told: dict[int, int] = {}
    monkeypatch.setattr(compiler, "THREADS", str(tmp_path))
    system = SimpleNamespace(
        PRIO_PROCESS=os.PRIO_PROCESS,
        getpriority=lambda _, number: threads[number][1],
        setpriority=lambda _, number, nice: told.update({number: nice}),
    )
    monkeypatch.setattr("pipeline.flow.compiler.os", system)
    give_way(spark)
    assert told == {11: NICE, 12: NICE + 5}
