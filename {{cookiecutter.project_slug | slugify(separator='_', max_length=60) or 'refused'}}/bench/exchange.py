"""A steady flow: sends records at a given rate, reads what comes back, and notes when each was made and read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.stage import STALL_SECONDS
from bench.workload import id_of, is_record, time_of
from pipeline.kafka import consumer_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stage import Relay, Stage
    from bench.workload import Workload

READ_AT_ONCE = 2_000
READ_SECONDS = 0.002


@dataclass
class Exchange:
    """Sends at a given rate and reads what comes back, by turns, in one thread: no lock stands between the two."""

    stage: Stage
    topic: str
    relay: Relay
    load: Workload
    read: dict[int, tuple[int, int]] = field(default_factory=dict)  # id: when it was made and read, in nanoseconds
    duplicated: int = 0

    def __post_init__(self) -> None:
        """Connect."""
        bootstrap = self.stage.bootstrap
        # Java's default since Kafka 4. Without a pause each record is a request of its own, which keeps a core busy.
        quick = {"linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap, **quick})
        # Data is answered at once; the wait is for an empty log only.
        self._consumer = Consumer({**consumer_config(bootstrap), "fetch.wait.max.ms": 100})
        self._consumer.assign([TopicPartition(self.relay.out, place, 0) for place in range(self.load.partitions)])

    def pace(self, rate: float, until: Callable[[], bool]) -> None:
        """Send and read until then."""
        started, sent = time.monotonic(), 0
        while not until():
            due = int((time.monotonic() - started) * rate)
            for _ in range(due - sent):
                record = self.load.make()
                self._producer.produce(self.topic, record.value, record.key, record.partition, headers=record.headers)
            sent = max(due, sent)
            self._producer.poll(0)
            self.take()

    def take(self) -> None:
        """Read what is there."""
        messages = self._consumer.consume(READ_AT_ONCE, READ_SECONDS)
        now = time.time_ns()
        for message in messages:
            if is_record(message):
                value = message.value()
                number = id_of(value)
                if number in self.read:
                    self.duplicated += 1
                else:
                    self.read[number] = (time_of(value), now)

    @property
    def waiting(self) -> int:
        """How many records were made that nobody has read yet."""
        return self.load.distinct - len(self.read)

    def finish(self) -> None:
        """Send nothing more, and read until all is there."""
        self._producer.flush(STALL_SECONDS)
        deadline = time.monotonic() + STALL_SECONDS
        while self.waiting:
            self.take()
            self.relay.check(deadline)

    def close(self) -> None:
        """Disconnect; what was not sent by now is not wanted any more."""
        self._producer.purge()
        self._consumer.close()
