"""The workload of demo and tests: payments, and with them all that an upstream does wrong, from one seed.

Guarantee: `plan` is deterministic, so the same seed sends the same records again, with the same identities
(another seed has other producer names). Re-sent records keep their key, so they reach the partition of the first.
Rows of aborted transactions carry an id that begins with "aborted-": none of them may ever be read.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pipeline.local.malformed import broken_stamps, stamp
from pipeline.local.values import ENCODE, UNDECODABLE_AS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.local.malformed import Headers

FIRST_AT = 1_760_000_000_000
ABORTED_PREFIX = b"aborted-"
ACCOUNTS = 5_000
PROBES, ALERTS = 0.02, 0.05  # of all payments: amounts of 0, and above that of an alert
ALERT_CENTS = 1_000_000
PRODUCERS = 8

# One Kafka transaction carries many upstream ones: a fresh producer for each of them would cost the demo minutes.
BATCH_EVENTS = 10_000


class Kind(StrEnum):
    """Why a record was sent; which verdict it gets is for the ledger, and for the audit, to say."""

    PAYMENT = "payment"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    OLD_EPOCH = "old-epoch"
    IDENTITY = "identity"
    UNDECODABLE = "undecodable"
    ABORTED = "aborted"


class Turn(NamedTuple):
    """When a fault comes: every so many transactions, beginning with one of them."""

    every: int
    first: int

    def is_up(self, transaction: int) -> bool:
        """Whether it comes with this transaction."""
        return transaction % self.every == self.first


# First turns come early, so that a hundred transactions have every fault, and apart, so that they do not mix.
AGAIN_AT_ONCE = Turn(10, 1)
AGAIN_LATER = Turn(10, 4)
ALL_AGAIN_LATER = Turn(50, 20)
CONTRADICTED = Turn(60, 30)
RESTARTED = Turn(100, 50)
MALFORMED = Turn(40, 10)
ABORTED_BATCHES = Turn(4, 1)
LATER = 20


class Event(NamedTuple):
    """One record for the source topic."""

    kind: Kind
    key: bytes | None
    value: bytes | None
    headers: Headers


class Batch(NamedTuple):
    """The records of one Kafka transaction, and whether it is committed."""

    commit: bool
    events: list[Event]


class _Payment(NamedTuple):
    producer: int
    txn: int
    seq: int
    key: bytes
    cents: int
    ident: bytes
    more: bytes = b""  # behind the value


@dataclass
class _Producer:
    name: bytes
    epoch: int = 0
    next_txn: int = 0
    last: list[_Payment] = field(default_factory=list)


def plan(count: int, *, seed: int = 1, producers: int = PRODUCERS, form: str = "json") -> Iterator[Batch]:
    """All Kafka transactions of the workload, in order; exactly `count` events are first sends of a payment."""
    upstream = _Upstream(count, seed, producers, form)
    number = 0
    while upstream.unsent:
        if ABORTED_BATCHES.is_up(number) and (aborted := upstream.aborted()).events:
            yield aborted
        yield upstream.batch()
        number += 1


class _Upstream:
    """Some producers that number their transactions, restart, re-send, lie, and send rubbish."""

    def __init__(self, count: int, seed: int, producers: int, form: str) -> None:
        self._encode, self._undecodable = ENCODE[form], UNDECODABLE_AS[form]
        # S311 would have a cryptographic source here, which cannot be seeded.
        self._random = random.Random(seed)  # noqa: S311
        self._producers = [_Producer(name=f"till-{seed}-{index}".encode()) for index in range(producers)]
        self._count = count
        self._accounts = max(1, min(ACCOUNTS, count // 4))
        self._longest = max(2, min(200, count // 100))
        self._batch_events = max(20, min(BATCH_EVENTS, count // 16))
        self._made = 0
        self._transactions = 0
        self._again: deque[list[_Payment]] = deque()
        self._later: deque[tuple[int, list[_Payment]]] = deque()

    @property
    def unsent(self) -> bool:
        return self._made < self._count or bool(self._again or self._later)

    def aborted(self) -> Batch:
        """Make attempts whose Kafka transaction is aborted; the next batch sends the same numbers again."""
        attempts = [self._transaction() for _ in range(3) if self._made < self._count]
        self._again.extend(attempts)
        false = [payment._replace(ident=ABORTED_PREFIX + payment.ident) for attempt in attempts for payment in attempt]
        return Batch(commit=False, events=self._stamp(Kind.ABORTED, false))

    def batch(self) -> Batch:
        events: list[Event] = []
        while self.unsent and len(events) < self._batch_events:
            while self._later and (self._later[0][0] <= self._transactions or self._made >= self._count):
                events += self._stamp(Kind.DUPLICATE, self._later.popleft()[1])
            if self._again:
                events += self._faulty(self._again.popleft())
            elif self._made < self._count:
                events += self._faulty(self._transaction())
        return Batch(commit=True, events=events)

    def _transaction(self) -> list[_Payment]:
        """Make the payments of some producer's next transaction."""
        index = self._random.randrange(len(self._producers))
        producer = self._producers[index]
        size = min(self._random.randint(max(1, self._longest // 10), self._longest), self._count - self._made)
        payments = [self._payment(index, producer.next_txn, seq) for seq in range(size)]
        producer.next_txn += 1
        self._made += size
        return payments

    def _payment(self, index: int, txn: int, seq: int, key: bytes | None = None) -> _Payment:
        # Squared: some accounts pay far more often than others, so partitions and keys are uneven.
        account = key or b"account-%d" % int(self._accounts * self._random.random() ** 2)
        share = self._random.random()
        cents = self._random.randint(1, ALERT_CENTS)
        if share < PROBES:
            cents = 0
        elif share < PROBES + ALERTS:
            cents = ALERT_CENTS + 1 + self._random.randrange(9_000_000)
        return _Payment(index, txn, seq, account, cents, b"%s-%d-%d" % (self._producers[index].name, txn, seq))

    def _value(self, payment: _Payment) -> bytes:
        at = FIRST_AT + 1_000 * payment.txn + payment.seq
        return self._encode(payment.ident, payment.key, payment.cents, at) + payment.more

    def _faulty(self, payments: list[_Payment]) -> list[Event]:
        """Send a transaction, and the faults whose turn it is: about 6 % of all payments are sent twice."""
        number = self._transactions
        self._transactions += 1
        producer = self._producers[payments[0].producer]
        producer.last = payments
        events = self._stamp(Kind.PAYMENT, payments)
        if AGAIN_AT_ONCE.is_up(number):
            events += self._stamp(Kind.DUPLICATE, self._some(payments, 5))
        if AGAIN_LATER.is_up(number):
            self._later.append((number + LATER, self._some(payments, 10)))
        if ALL_AGAIN_LATER.is_up(number):
            self._later.append((number + LATER, payments))
        if CONTRADICTED.is_up(number):
            # The last one: its hash is among those kept, in whatever lane it is.
            events += self._stamp(Kind.CONFLICT, [payments[-1]._replace(more=b" ")])
        if RESTARTED.is_up(number):
            events += self._restart(producer)
        if MALFORMED.is_up(number):
            events += self._malformed(payments[0].producer)
        return events

    def _some(self, payments: list[_Payment], share: int) -> list[_Payment]:
        chosen = set(self._random.sample(range(len(payments)), 1 + len(payments) // share))
        return [payment for place, payment in enumerate(payments) if place in chosen]

    def _restart(self, producer: _Producer) -> list[Event]:
        """Come back unsure of the last transaction, send it again; a zombie sends the next one, to the same keys."""
        producer.epoch += 1
        events = self._stamp(Kind.DUPLICATE, producer.last)
        keys = [payment.key for payment in producer.last[:3]]
        index = producer.last[0].producer
        zombie = [self._payment(index, producer.next_txn, seq, key) for seq, key in enumerate(keys)]
        return events + self._stamp(Kind.OLD_EPOCH, zombie, epoch=producer.epoch - 1)

    def _malformed(self, index: int) -> list[Event]:
        """Every way to be unusable: first a broken identity, then a good one with a broken value."""
        producer = self._producers[index]
        payment = self._payment(index, producer.next_txn, 0)
        producer.next_txn += 1
        good = stamp(producer.name, producer.epoch, payment.txn, payment.seq)
        sound = self._value(payment)
        broken = [Event(Kind.IDENTITY, payment.key, sound, headers) for headers in broken_stamps(good)]
        broken.append(Event(Kind.IDENTITY, None, sound, []))
        for seq, value in enumerate(self._undecodable):
            headers = stamp(producer.name, producer.epoch, payment.txn, seq)
            broken.append(Event(Kind.UNDECODABLE, payment.key, value, headers))
        return broken

    def _stamp(self, kind: Kind, payments: list[_Payment], epoch: int | None = None) -> list[Event]:
        """Stamped when sent: what a restarted producer sends again carries its new epoch."""
        events = []
        for payment in payments:
            producer = self._producers[payment.producer]
            headers = stamp(producer.name, producer.epoch if epoch is None else epoch, payment.txn, payment.seq)
            events.append(Event(kind, payment.key, self._value(payment), headers))
        return events
