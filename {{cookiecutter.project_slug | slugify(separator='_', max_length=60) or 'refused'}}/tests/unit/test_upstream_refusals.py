"""What StampedProducer refuses before it talks to any broker."""

from __future__ import annotations

import pytest

from pipeline.errors import BadSettings, PipelineError
from pipeline.sections import Identity as Names
from pipeline.upstream import StampedProducer, StampedTransaction
from pipeline.upstream_attempt import attempt_config


@pytest.mark.parametrize("name", ["transactional.id", "partitioner", "enable.idempotence", "enable.sparse.connections"])
def test_settings_on_which_the_guarantee_rests_are_refused(name: str) -> None:
    with pytest.raises(BadSettings, match=name):
        StampedProducer({"bootstrap.servers": "localhost:1", name: "x"}, "topic", "till-1")


@pytest.mark.parametrize("producer_id", ["", "p" * 201, "é" * 101])
def test_a_producer_id_that_the_lanes_would_refuse_is_refused(producer_id: str) -> None:
    with pytest.raises(BadSettings, match="1 to 200 bytes"):
        StampedProducer({"bootstrap.servers": "localhost:1"}, "topic", producer_id)


def test_the_client_is_configured_for_transactions_with_the_partition_rule_of_java() -> None:
    config = attempt_config({"bootstrap.servers": "localhost:1", "linger.ms": 3}, "payments", "till-1")
    assert config["transactional.id"] == "stamped/payments/till-1"
    assert (config["partitioner"], config["enable.idempotence"]) == ("murmur2", True)
    assert (config["linger.ms"], config["transaction.timeout.ms"], config["message.timeout.ms"]) == (3, 60_000, 60_000)


@pytest.mark.parametrize("key", [b"", None])
def test_a_row_without_a_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(PipelineError, match="without a key"):
        StampedTransaction(Names()).send(key, b"v")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["producer-id", "producer-epoch", "t", "seq"])
def test_a_header_of_the_stamp_is_refused_under_its_configured_name(name: str) -> None:
    transaction = StampedTransaction(Names(txn_id="t"))
    with pytest.raises(PipelineError, match=f"'{name}' belongs to the stamp"):
        transaction.send(b"k", b"v", [("own", b"1"), (name, b"1")])
    transaction.send(b"k", b"v", [("txn-id", b"1")])
    assert transaction.rows == [(b"k", b"v", [("txn-id", b"1")])]


def test_an_ended_transaction_takes_no_rows() -> None:
    transaction = StampedTransaction(Names())
    transaction.end()
    with pytest.raises(PipelineError, match="has ended"):
        transaction.send(b"k", b"v")
