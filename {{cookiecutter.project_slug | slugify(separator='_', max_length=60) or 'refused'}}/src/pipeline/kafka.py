"""Kafka client configurations, and the one place where Kafka's errors become ours.

Guarantee: every reader states its isolation, every producer is idempotent and transactional, and each
client error is one of four kinds: retriable, abortable, fatal, or unknown, which is treated as fatal.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from pipeline.address import access_of, entry, group_of
from pipeline.denied import denial, refusal
from pipeline.errors import Denied, PipelineError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from confluent_kafka import Producer

    from pipeline.settings import Settings

Result = TypeVar("Result")

# A metadata or offset request that takes longer than this has no broker behind it.
REQUEST_SECONDS = 15.0

# How long transactional work is started again: through a fence lost to a zombie, an out-of-date recall, an uncertain
# commit, and the restart of a broker. Beyond it the job ends, and its supervisor starts it anew.
GIVE_UP_SECONDS = 120.0
BACK_OFF_SECONDS = 0.5
# For how long a full queue of a producer is served at a time.
ROOM_SECONDS = 0.05
LONGEST_BACK_OFF_SECONDS = 5.0

# Larger batches gain nothing. Also below Kafka's default for max.message.bytes, by which a batch is refused as a whole.
BATCH_BYTES = 1_000_000

# What a reader may have to hold of one batch once it is unpacked: some kilobytes of zstd can be as large. librdkafka's
# own bound of 100 MB is below what the Java client reads, and such a batch would hold up every reader here for ever.
READ_BYTES = 400_000_000

# Answers while a partition changes its leader; librdkafka passes them on, and keeps what it knows of leaders.
LEADER_MOVES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
LOOK_AGAIN_SECONDS = 0.1

COMMON = {
    # librdkafka opens connections lazily and then waits on fixed timers: 55 to 510 ms for each fresh client.
    # Eager connections make a fresh producer ready in about 4 ms.
    "enable.sparse.connections": False,
    # A failed call says why; librdkafka's own log would repeat it for each of its connections on standard error.
    # Of fatal errors, such as a lane lost to another writer, it speaks at any level: to nobody.
    "log_level": 2,
    "logger": logging.Logger("librdkafka", logging.CRITICAL + 1),  # noqa: LOG001  apart from all others, so it stays mute
}


class TransactionFailed(PipelineError):
    """A transaction did not go through; its producer must be dropped, the work starts again at the fence."""


class Abortable(TransactionFailed):
    """The broker refused a part of it; the transaction can only be aborted."""


class Fatal(TransactionFailed):
    """The producer is dead; also every error of a kind not known here."""


class Fenced(Fatal):
    """Another producer took the transactional id, or the transaction outlived its time-out."""


FENCED_CODES = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001  confluent-kafka exports librdkafka's local codes with this underscore
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


def producer_config(settings: Settings, transactional_id: str, batch_bytes: int = BATCH_BYTES) -> dict[str, Any]:
    """A producer that is good for one transaction, to topics that take batches of `batch_bytes`."""
    return {
        **COMMON,
        **entry(settings.output_bootstrap),
        # With many brokers and many lanes a connection to each broker for each transaction costs more than it saves.
        "enable.sparse.connections": settings.transaction.connections == "needed",
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction.timeout_ms,
        # A topic that was deleted stays so: librdkafka's producers have brokers make anew what they ask for.
        "allow.auto.create.topics": False,
        # Must not outlive the transaction: a record delivered later would belong to nothing.
        "message.timeout.ms": settings.transaction.timeout_ms,
        "partitioner": "murmur2_random",  # Java's rule; librdkafka's own is CRC32
        "compression.type": settings.output.compression,
        "linger.ms": 5,
        # A broker that still writes the markers of the lane's last transaction refuses records for some milliseconds:
        # the default of 100 made every seventh small batch wait. It grows to a second while a broker is away.
        "retry.backoff.ms": 10,
        "batch.size": min(batch_bytes, BATCH_BYTES),
        # The topic decides on a record's size: librdkafka's own bound is lower than Kafka's, and would hold up a lane.
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 262_144,  # bounds the worker's memory for one chunk
        "statistics.interval.ms": 0,
    }


def consumer_config(bootstrap: str, group: str = "", *, isolation: str = "read_committed") -> dict[str, Any]:
    """A reader that is assigned, never subscribed, and told where the log ends."""
    return {
        **COMMON,
        **entry(bootstrap),
        "group.id": group or group_of(bootstrap),
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10,
        # The default of 1000 makes a reader that emptied its queue wait for up to a second.
        "fetch.queue.backoff.ms": 10,
        "receive.message.max.bytes": READ_BYTES,
    }


def admin_config(bootstrap: str) -> dict[str, Any]:
    """An admin client."""
    return {**COMMON, **entry(bootstrap)}


@contextmanager
def mapped(action: str, *needs: str) -> Iterator[None]:
    """Turn a client error into one of our kinds; the most specific wins. `needs`: "Write on Topic receipts"."""
    raised: object = None
    try:
        yield
    except KafkaException as error:
        raise as_kind(error.args[0], action, *needs) from error
    except SystemError as error:
        # confluent-kafka raises a fatal error in mid callback. If that callback was a delivery report, Python wraps it;
        # if a line of its log came in between, the error is lost, and only this is left of it.
        if isinstance(error.__cause__, KafkaException):
            raise as_kind(error.__cause__.args[0], action, *needs) from error
        msg = f"{action}: the client failed without a reason ({error})"
        raise Fatal(msg) from error
    except BufferError as error:
        msg = f"{action}: the producer's queue stayed full; the cluster does not keep up, or chunk_rows is too large"
        raise Fatal(msg) from error
    except:  # noqa: E722  of a fatal error confluent-kafka may raise the bare KafkaError, which is no BaseException
        raised = sys.exc_info()[1]
        if not isinstance(raised, KafkaError):
            raise
    if isinstance(raised, KafkaError):
        raise as_kind(raised, action, *needs)


def as_kind(error: KafkaError, action: str, *needs: str) -> PipelineError:
    """The kind of one client error. Unknown is fatal: no branch may go on with a doubtful producer.

    What the cluster denies is no failed transaction: to start it again would not help.
    """
    text = f"{action}: {error.name()}: {error.str()}"
    if denied := denial(error, action, *needs):
        return denied
    if error.code() in FENCED_CODES:
        return Fenced(text)
    if error.txn_requires_abort():
        return Abortable(text)
    return Fatal(text)


def code_of(error: BaseException) -> int | None:
    """Kafka's code of an error, or of its cause."""
    cause = error if isinstance(error, KafkaException) else error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else None


def until_deadline(
    call: Callable[[float], Result], seconds: float, is_final: Callable[[KafkaError], bool] | None = None
) -> Result:
    """Repeat a call, as it stands, until the deadline; the one retry core.

    Final is what its client does not declare retriable, unless the caller knows better.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        try:
            return call(left)
        except KafkaException as error:
            reason = error.args[0]
            final = not reason.retriable() if is_final is None else is_final(reason)
            if final or time.monotonic() >= deadline:
                raise


def while_leaders_move(
    ask: Callable[[], Result], renew: Callable[[], object], seconds: float, codes: Collection[int] = LEADER_MOVES
) -> Result:
    """Ask again until the deadline; `renew` makes the client forget the old leader, which it would ask for ever."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (Unreachable, KafkaException) as error:
            if code_of(error) not in codes or time.monotonic() > deadline:
                raise
        time.sleep(LOOK_AGAIN_SECONDS)
        renew()


def with_room(producer: Producer, seconds: float, topic: str, *record: Any, **options: Any) -> None:
    """Enqueue one record as `produce` takes it; while the queue is full, serve it, for so many seconds at most."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            producer.produce(topic, *record, **options)
        except BufferError:
            if time.monotonic() > deadline:
                raise
            producer.poll(ROOM_SECONDS)
        else:
            return


def until_given_up(work: Callable[[int], Result], note: Callable[[TransactionFailed], None] | None = None) -> Result:
    """Start failed transactional work again from its fence, with random pauses; `work` is told the attempt's number."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    attempt = 1
    while True:
        try:
            return work(attempt)
        except TransactionFailed as error:
            if note is not None:
                note(error)
            # Never after the first one: only later attempts name the record that failed.
            if attempt > 1 and time.monotonic() > deadline:
                raise
        # Random and growing, so that two writers of one lane fall out of step.
        longest = min(BACK_OFF_SECONDS * attempt, LONGEST_BACK_OFF_SECONDS)
        time.sleep(random.uniform(0.0, longest))  # noqa: S311  jitter, not a secret
        attempt += 1


@contextmanager
def reachable(bootstrap: str, what: str, needs: str = "") -> Iterator[None]:
    """Turn a failed request outside of transactions into one line that names the cluster, or what it refuses."""
    try:
        yield
    except TimeoutError as error:
        # The wait for an answer ends at the same time as the request that should bring it; either may come first.
        check_entry(bootstrap, what)
        msg = f"{what}: no answer (cluster {bootstrap}); check the address and that the brokers run"
        raise Unreachable(msg) from error
    except KafkaException as error:
        cause = error.args[0]
        if denied := denial(cause, f"{what} (cluster {bootstrap})", needs):
            raise denied from error
        if cause.code() < 0:  # no broker's answer
            check_entry(bootstrap, what)
        msg = f"{what}: {cause.name()}: {cause.str()} (cluster {bootstrap}); check the address and that the brokers run"
        raise Unreachable(msg) from error


def check_entry(bootstrap: str, what: str) -> None:
    """Refuse to take for a cluster that is away one that does not let us in."""
    access = access_of(bootstrap)
    if access.locked and (reason := refusal(admin_config(bootstrap))):
        msg = (
            f"{what}: cluster {bootstrap} does not let {access.principal} in: {reason}; "
            f"check [{access.section}], the secret it names and the certificates"
        )
        raise Denied(msg)
