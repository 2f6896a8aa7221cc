"""What a batch is about to do, where that must outlive a crash: how far each lane goes, with which reference data.

Guarantee: a plan is committed before the first output of its batch, under the rules of a lane record: fenced, compared,
newest run wins. So a batch of which some lanes are committed and others not can be finished as it was begun. Only jobs
with reference data write plans; their topic is `<app>.<source topic>.plans`, compacted, with one partition.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipeline.errors import Replaced, SafeStop
from pipeline.kafka import producer_config, until_given_up
from pipeline.lanes.recall import find, hanging_after, recall
from pipeline.lanes.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.settings import Settings

VERSION = 1
KEY = b"plan"
PARTITION = 0


@dataclass(frozen=True)
class Plan:
    """One batch: the ends of its ranges by source partition, and the table it is enriched with."""

    run: int = 0
    first: dict[int, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    reference: dict[int, int] = field(default_factory=dict)  # offsets up to which the topic was read, not included
    digest: str = ""  # of all keys and values: what is built again must be the same

    def encode(self) -> bytes:
        """As JSON, for people to read."""
        return json.dumps({"version": VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Plan:
        """Read a plan; what is not understood stops the job."""
        try:
            values: dict[str, Any] = json.loads(data)
            version = values.pop("version")
            first, until, reference = (_offsets(values.pop(name)) for name in ("first", "until", "reference"))
            plan = cls(first=first, until=until, reference=reference, **values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            msg = f"{where}: not a plan of this program ({error}); find out who writes there, do not delete it"
            raise SafeStop(msg) from error
        if version != VERSION:
            msg = f"{where}: a plan of version {version}, but this code reads {VERSION}: run the code that wrote it"
            raise SafeStop(msg)
        return plan

    def unfinished(self, next_offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """The ranges of it that lanes have not passed."""
        return {
            lane: (next_offsets[lane], until)
            for lane, until in self.until.items()
            if lane in next_offsets and next_offsets[lane] < until
        }

    def is_begun(self, next_offsets: Mapping[int, int]) -> bool:
        """Whether some lane has committed a part of it."""
        return any(next_offsets.get(lane, first) > first for lane, first in self.first.items())


def _offsets(values: Mapping[str, int]) -> dict[int, int]:
    return {int(lane): offset for lane, offset in values.items()}


class Plans:
    """The plans of one run, each in the place of the last."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self.run = 0

    def take_over(self, run: int) -> Plan:
        """Shut out earlier runs; returns the plan that the last of them left."""
        self.run = run
        return until_given_up(lambda _: self._put(None))

    def write(self, plan: Plan) -> None:
        """Commit the plan of the next batch."""
        until_given_up(lambda _: self._put(plan))

    def _put(self, plan: Plan | None) -> Plan:
        settings = self._settings
        where = f"{settings.plan_topic} [{PARTITION}]"
        transaction = Transaction(producer_config(settings, settings.plan_id))
        transaction.fence()
        place = (settings.output_bootstrap, settings.plan_topic, PARTITION, KEY)
        found = recall(*place, hanging_after(settings))
        last = Plan.decode(found.value, where)
        if last.run > self.run:
            msg = f"replaced by run {last.run}: it has planned a batch while this job was run {self.run}"
            raise Replaced(msg)
        with transaction:
            transaction.begin()
            value = replace(last if plan is None else plan, run=self.run).encode()
            transaction.put_lane_record(settings.plan_topic, PARTITION, KEY, value)
            transaction.flush_and_compare(found.end)
            transaction.commit()
        return last


def first_plan(settings: Settings, _attempt: int = 0) -> str:
    """Give the topic its first plan, of nothing; `provision` calls it."""
    place = (settings.output_bootstrap, settings.plan_topic, PARTITION, KEY)
    if find(*place).value is not None:
        return "plans: there"
    transaction = Transaction(producer_config(settings, settings.plan_id))
    transaction.fence()
    found = find(*place, hanging_after(settings))
    if found.value is None:
        with transaction:
            transaction.begin()
            transaction.put_lane_record(settings.plan_topic, PARTITION, KEY, Plan().encode())
            transaction.flush_and_compare(found.end)
            transaction.commit()
    return "plans: begun"
