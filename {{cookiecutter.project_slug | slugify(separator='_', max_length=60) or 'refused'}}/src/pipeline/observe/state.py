"""`pipeline state`: what the job remembers, where, and by which setting it is bounded.

Guarantee: read from the committed lane records alone, while the job runs or not; nothing is started and nothing is
written. Of Spark's state it shows what the job noted with its last batch: that of the batch before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from pipeline.lanes.cost import costs
from pipeline.lanes.recall import recall
from pipeline.lanes.record import decode, lane_key
from pipeline.lanes.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from pipeline.lanes.columns import ProducerState
    from pipeline.lanes.record import LaneRecord
    from pipeline.settings import Settings


@dataclass
class Producer:
    """What the ledgers of all lanes hold of one producer."""

    name: str
    lanes: int = 0
    epoch: int = 0
    newest: tuple[int, int] = (-1, -1)  # transaction, place in it
    ids: int = 0
    ranges: int = 0
    hashes: int = 0
    bytes: int = 0

    def add(self, held: ProducerState, cost: int) -> None:
        """Take in what one more lane holds."""
        self.lanes += 1
        self.epoch = max(self.epoch, held.epoch)
        self.newest = max(self.newest, (held.txns[-1], held.lasts[-1]))
        self.ids += sum(held.lasts) - sum(held.firsts) + len(held.firsts)
        self.ranges += len(held.txns)
        self.hashes += len(held.digests)
        self.bytes += cost


@dataclass
class State:
    """All that is held."""

    path: str
    bounds: list[str]
    lanes: int = 0
    producers: dict[str, Producer] = field(default_factory=dict)
    largest_lane_bytes: int = 0
    batch: int | None = None
    watermark: str = ""
    state_rows: int = 0
    state_bytes: int = 0

    @property
    def ledger_bytes(self) -> int:
        """Of all lanes, by the ledger's own formula."""
        return sum(one.bytes for one in self.producers.values())

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        return {**asdict(self), "producers": [asdict(one) for one in self.producers.values()]}


def read_state(settings: Settings) -> State:
    """Read every lane's record as it stands."""
    partitions = Topics(settings.source.bootstrap).one(settings.source.topic, "source topic").partitions
    keys = [lane_key(settings.app.id, settings.source.topic, lane) for lane in range(partitions)]
    found = (recall(settings.output_bootstrap, settings.lane_topic, lane, key) for lane, key in enumerate(keys))
    return gathered(settings, (decode(one.value, key) for one, key in zip(found, keys, strict=True)))


def gathered(settings: Settings, lanes: Iterable[LaneRecord]) -> State:
    """What the lanes hold together."""
    state = State("shuffled" if settings.shuffled else "lanes", bounds(settings))
    for lane in lanes:
        state.lanes += 1
        before = state.ledger_bytes
        for held, cost in zip(lane.producers, costs(lane.producers).tolist(), strict=True):
            state.producers.setdefault(held.producer_id, Producer(held.producer_id)).add(held, cost)
        state.largest_lane_bytes = max(state.largest_lane_bytes, state.ledger_bytes - before)
        if lane.token is not None and lane.token.batch_id >= (-1 if state.batch is None else state.batch):
            state.batch = lane.token.batch_id
            state.watermark = datetime.fromtimestamp(lane.token.watermark_ms / 1000, UTC).isoformat()
            state.state_rows, state.state_bytes = lane.token.state_rows, lane.token.state_bytes
    return state


def bounds(settings: Settings) -> list[str]:
    """Which settings keep it from growing, in words."""
    dedup, windows = settings.dedup, settings.windows
    if settings.flow.path == "windows":
        held = "a window is held until the watermark has passed its end"
        return [f"{held}: windows.watermark_seconds = {windows.watermark_seconds} behind the newest event"]
    if dedup.strategy == "window":
        held = "an id is held for at least dedup.horizon_seconds"
        twice = "up to about twice as long, and longer where no batch comes"
        return [f"{held} = {dedup.horizon_seconds} after the batch that brought it, {twice}"]
    return [
        f"a producer's newest dedup.recent_ids = {dedup.recent_ids} ids, {dedup.hashes} of them with a hash",
        (
            f"a lane's ledger is held below dedup.ledger_bytes = {dedup.ledger_bytes}: the oldest ids go first, but "
            "never the newest one of a producer, which takes about 70 bytes"
        ),
    ]


def show(state: State, console: Console, most: int) -> None:
    """Print it: the bounds, what Spark holds, and the producers that take most."""
    for line in state.bounds:
        console.print(f"bound: {line}", highlight=False)
    if state.path == "shuffled":
        held = f"{state.state_rows} rows, {state.state_bytes} bytes of memory in Spark's state store"
        console.print(f"batch {state.batch}, watermark {state.watermark or 'none'}: {held}", highlight=False)
        return
    console.print(
        f"ledger: {len(state.producers)} producers in {state.lanes} lanes, {state.ledger_bytes} bytes, "
        f"the largest lane {state.largest_lane_bytes}",
        highlight=False,
    )
    table = Table("producer", "lanes", "epoch", "newest id", "ids", "ranges", "hashes", "bytes", box=None)
    largest = sorted(state.producers.values(), key=lambda one: -one.bytes)
    for one in largest[:most]:
        # A producer's name is what the upstream wrote: shown as text, whatever it holds.
        name = one.name.encode("unicode_escape").decode()
        cells = (one.lanes, one.epoch, f"{one.newest[0]}:{one.newest[1]}", one.ids, one.ranges, one.hashes, one.bytes)
        table.add_row(Text(name), *map(str, cells))
    console.print(table)
    if len(largest) > most:
        console.print(f"... and {len(largest) - most} more; see --most")
