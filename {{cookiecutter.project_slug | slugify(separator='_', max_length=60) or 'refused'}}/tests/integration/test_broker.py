"""The embedded broker: a real Kafka that starts fast, keeps its data, can be hurt, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.support.kafka import QUIET, create_topic, fresh, read_committed, read_uncommitted, wait_until

from pipeline.errors import PipelineError
from pipeline.local import broker as broker_module
from pipeline.local.broker import Broker
from pipeline.local.node import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A killed node may come back when its old session has ended.
HASTY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
SRC = Path(broker_module.__file__).parents[2]


def send(bootstrap: str, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    """Write the values in one transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": fresh("txn"), **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return what a `read_committed` reader sees."""
    return [record.value for record in read_committed(bootstrap, topic)]


def admin(bootstrap: str) -> AdminClient:
    """Return a client that makes no noise when nodes die."""
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


def setting(bootstrap: str, kind: str, name: str, key: str) -> str | None:
    """Return a setting of a topic or of a broker, as Kafka tells it."""
    client = admin(bootstrap)
    resource = ConfigResource(kind, name)
    value: str | None = client.describe_configs([resource])[resource].result(10)[key].value
    return value


def answers(address: str) -> bool:
    """Tell whether a node answers a metadata request within a second."""
    try:
        admin(address).list_topics(timeout=1)
    except KafkaException:
        return False
    return True


def lives(pid: int) -> bool:
    """Tell whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_free(address: str) -> bool:
    """Tell whether a server could listen there."""
    host, port = address.split(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


@pytest.fixture(scope="module")
def three() -> Iterator[Broker]:
    """Return a broker of three nodes; a test leaves all of them running."""
    with Broker(nodes=3, properties=HASTY) as running:
        yield running


def test_a_committed_transaction_is_seen_and_an_aborted_one_is_not(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b"aborted"], commit=False)
    send(broker.bootstrap, topic, [b"committed", b"too"])
    assert values(broker.bootstrap, topic) == [b"committed", b"too"]
    assert [record.value for record in read_uncommitted(broker.bootstrap, topic)] == [b"aborted", b"committed", b"too"]


def test_topics_are_never_created_in_silence(broker: Broker) -> None:
    topic = fresh("absent")
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3000, **QUIET})
    producer.produce(topic, b"lost", on_delivery=lambda error, _: failed.append(error))
    producer.flush(10)
    assert failed[0] is not None
    assert topic not in admin(broker.bootstrap).list_topics(timeout=10).topics


def test_topics_have_no_retention_by_time_unless_asked(broker: Broker) -> None:
    topic = create_topic(broker.bootstrap)
    assert setting(broker.bootstrap, "topic", topic, "retention.ms") == "-1"


def test_a_start_takes_seconds_and_data_outlives_a_second_start(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Not plain ASCII, and with the characters that separate lists and settings in Kafka's files.
    folder = tmp_path / "däta, a=b c"
    began = time.monotonic()
    first = Broker(folder)
    with first:
        seconds = time.monotonic() - began
        record_property("start_seconds", round(seconds, 2))
        sys.stdout.write(f"one node ready after {seconds:.1f} s\n")
        address, pid = first.bootstrap, first.pids[1]
        topic = create_topic(first.bootstrap)
        send(first.bootstrap, topic, [b"kept"])
        with pytest.raises(PipelineError, match="another embedded broker runs in"):
            Broker(folder).start()
        assert first.pids == {1: pid}
    # About 4 s on two idle cores; the bound leaves room for a machine that is busy with other tests.
    assert seconds < 40
    assert not lives(pid)
    assert is_free(address)
    with first:
        assert first.bootstrap == address
        assert values(first.bootstrap, topic) == [b"kept"]
    with Broker(folder) as second:
        assert values(second.bootstrap, topic) == [b"kept"]
    with pytest.raises(PipelineError, match=r"holds the data of 1 Kafka node\(s\), 3 are to start in it"):
        Broker(folder, nodes=3).start()


def test_a_killed_node_starts_again_on_its_ports_with_its_data(tmp_path: Path) -> None:
    with Broker(tmp_path, properties=HASTY) as broker:
        # A property that is given goes over the default.
        assert setting(broker.bootstrap, "broker", "1", "broker.session.timeout.ms") == "2000"
        topic = create_topic(broker.bootstrap)
        send(broker.bootstrap, topic, [b"before"])
        # A commit is confirmed before its markers are written, and Kafka 4.3.1 may never write those it owes when it is
        # killed then (KAFKA-20734).
        assert values(broker.bootstrap, topic) == [b"before"]
        address, pid = broker.bootstrap, broker.pids[1]
        broker.kill()
        assert not lives(pid)
        assert broker.pids == {}
        with pytest.raises(PipelineError, match="node 1 does not run"):
            broker.pause()
        broker.restart()
        assert broker.pids.keys() == {1}
        assert broker.bootstrap == address
        assert values(broker.bootstrap, topic) == [b"before"]


def test_a_port_taken_by_another_program_makes_it_choose_another(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [free_ports(1), free_ports(1)]
    with socket.create_server(("127.0.0.1", chosen[0][0].client)):
        monkeypatch.setattr(broker_module, "free_ports", lambda _: chosen.pop(0))
        with Broker() as broker:
            assert answers(broker.bootstrap)
    assert chosen == []


def test_a_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = Broker(properties={"num.io.threads": "many"})
    with pytest.raises(PipelineError, match=r"(?s)failed; the end of the log .*num\.io\.threads"):
        broker.start()
    assert broker.pids == {}
    assert list(tmp_path.iterdir()) == []


CREATOR = """
    import os, signal, sys, time
    from pipeline.local.broker import Broker
    # Whatever started the tests in the background may have had Ctrl-C ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Broker() as broker:
        # The forked child holds every pipe of its parent open, and outlives it.
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(broker.pids[1], child, broker.log().parents[1], broker.bootstrap, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_and_no_folder_is_left_when_its_creator_ends(how: signal.Signals) -> None:
    # A session of its own, like a shell's job: Ctrl-C reaches every process in its group at once.
    creator = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CREATOR)],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with creator:
        assert creator.stdout is not None
        jvm, child, folder, address = creator.stdout.readline().split()
        try:
            assert lives(int(jvm))
            if how == signal.SIGINT:
                os.killpg(creator.pid, how)
            else:
                creator.send_signal(how)
            creator.wait(20)
            wait_until(lambda: not lives(int(jvm)), what="the JVM is gone")
            wait_until(lambda: not Path(folder).exists(), what="the temporary folder is gone")
            assert is_free(address)
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_three_nodes_replicate_and_live_on_without_one(three: Broker) -> None:
    topic = create_topic(three.bootstrap, partitions=3)
    found = admin(three.bootstrap).list_topics(topic, timeout=10).topics[topic].partitions.values()
    assert [len(partition.replicas) for partition in found] == [3, 3, 3]
    assert setting(three.bootstrap, "topic", topic, "min.insync.replicas") == "2"
    state = admin(three.bootstrap).list_topics("__transaction_state", timeout=10).topics["__transaction_state"]
    assert {len(partition.replicas) for partition in state.partitions.values()} == {3}
    three.kill(2)
    assert three.pids.keys() == {1, 3}
    send(three.bootstrap, topic, [b"two nodes are enough"])
    three.restart(2)
    assert three.pids.keys() == {1, 2, 3}
    assert values(three.bootstrap, topic) == [b"two nodes are enough"]

    def in_sync() -> bool:
        partitions = admin(three.bootstrap).list_topics(topic, timeout=10).topics[topic].partitions.values()
        return all(len(partition.isrs) == 3 for partition in partitions)

    wait_until(in_sync, what="the restarted node is in sync")


def test_a_paused_node_answers_nothing_until_it_is_resumed(three: Broker) -> None:
    address = three.bootstrap.split(",")[2]
    three.pause(3)
    try:
        assert not answers(address)
        assert three.pids.keys() == {1, 2, 3}
    finally:
        three.resume(3)
    wait_until(lambda: answers(address), what="the resumed node answers")
