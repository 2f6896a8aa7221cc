"""Names of Java: asked for once, and what they stand for is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql.functions import col, lit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what Python asks of Java, by kind: `r` for names, `c` for calls."""
    sent: list[str] = []
    send = ClientServerConnection.send_command

    def noted(self: ClientServerConnection, command: str) -> str:
        sent.append(command[0])
        return str(send(self, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", noted)
    return sent


def test_a_name_is_asked_for_once(spark: SparkSession, asked: list[str]) -> None:
    first = col("amount")
    asked.clear()
    second = col("amount")
    assert "r" not in asked, "neither the class of the functions nor its function"
    assert asked.count("c") == 1, "the column itself"
    assert str(first) == str(second)
    assert spark.range(3).select((col("id") + lit(1)).alias("next")).agg({"next": "max"}).collect()[0][0] == 3


def test_packages_and_classes_keep_their_kind(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001  what is tested
    assert jvm is not None
    assert jvm.java.lang.Math.max(3, 4) == 4
    assert jvm.java.lang.Math.max(3, 4) == 4
    assert jvm.java.util.ArrayList().size() == 0
    assert "ArrayList" in jvm.java.util.__dict__
    with pytest.raises(TypeError, match="object is not callable"):
        jvm.java.util.NoClassYet()
    assert "NoClassYet" not in jvm.java.util.__dict__, "it may come with a jar that is added later"


def test_a_value_of_java_is_not_kept(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    assert jvm.java.lang.Integer.MAX_VALUE == 2**31 - 1
    assert "MAX_VALUE" not in jvm.java.lang.Integer.__dict__
