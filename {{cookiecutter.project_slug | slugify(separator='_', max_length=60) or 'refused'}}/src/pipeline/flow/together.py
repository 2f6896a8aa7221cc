"""A task of several lanes: it reads their ranges, one lane after another, and writes them together.

With atomicity `batch` one task has all lanes of a batch, and one transaction. Else a task commits whenever it has about
as much in hand as one lane alone may have: of a small batch, once.

Guarantee: no shuffle, so each lane's rows come in offset order; rows are told apart by their own partition, never by
their place. An input that breaks in the middle of a lane is never taken for its end. Rows are gathered before their
transaction is begun: user code takes no time of it.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pipeline.errors import SafeStop
from pipeline.lanes.joined import joined
from pipeline.lanes.kept import keep_large
from pipeline.lanes.report import STOPS, LaneReport
from pipeline.lanes.rows import Chunk, chunks, lane_rows
from pipeline.lanes.share import ShareWriter
from pipeline.lanes.side_by_side import by_lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pipeline.lanes.rows import Rows
    from pipeline.lanes.task import LaneTask
    from pipeline.settings import Settings

    Cut = Callable[[LaneTask, Iterable[Rows]], Iterable[Chunk]]


def run_batch(tasks: list[LaneTask], batches: Iterator[Any]) -> list[LaneReport]:
    """Write all lanes of a batch by one transaction, under the app's batch id."""
    writer = _writer(tasks)

    def write() -> None:
        writer.begin()
        for lane, chunk in lane_chunks(tasks, batches, whole):
            writer.gather(lane, chunk)
        writer.write()

    return _reports(writer, write, tasks, batches)


def run_together(tasks: list[LaneTask], batches: Iterator[Any]) -> list[LaneReport]:
    """Write the lanes of a task, under the id of the lowest: no other task has that lane, so none has its id."""
    writer = _writer(tasks)

    def write() -> None:
        writer.begin()
        for lane, chunk in lane_chunks(tasks, batches, bounded):
            if not writer.has_room(lane, chunk):
                writer.write()
            writer.gather(lane, chunk)
        writer.write()

    return _reports(writer, write, tasks, batches)


def ids_of(shares: Iterable[Iterable[int]], settings: Settings) -> dict[int, str]:
    """The transactional id under which each lane is written; `shares` are the lanes of each task of a batch."""
    delivery, own = settings.delivery, settings.transactional_id
    if delivery.atomicity == "batch":
        return {lane: settings.batch_id for share in shares for lane in share}
    if delivery.semantics != "exactly-once":
        return {lane: own(lane) for share in shares for lane in share}
    return {lane: own(min(share)) for share in map(list, shares) for lane in share}


def whole(task: LaneTask, rows: Iterable[Rows]) -> Iterable[Chunk]:
    """A lane's range as one chunk."""
    return [Chunk(task.first, task.until, list(rows))]


def bounded(task: LaneTask, rows: Iterable[Rows]) -> Iterable[Chunk]:
    """A lane's range in chunks."""
    limits = task.settings.transaction
    return chunks(rows, task.first, task.until, max_rows=limits.chunk_rows, max_seconds=limits.chunk_seconds)


def lane_chunks(tasks: list[LaneTask], batches: Iterable[Any], cut: Cut) -> Iterator[tuple[int, Chunk]]:
    """The chunks of each lane, in the order of the tasks; of one without rows too, so that it advances."""
    places = {task.partition: place for place, task in enumerate(tasks)}
    now = 0
    for partition, found in groupby(by_lane(batches), itemgetter(0)):
        place = places.get(partition, -1)
        if place < now:
            msg = f"rows of partition {partition} where others were expected: transform must keep rows as they are"
            raise SafeStop(msg)
        for task in tasks[now:place]:
            yield from ((task.partition, chunk) for chunk in cut(task, ()))
        task, now = tasks[place], place + 1
        names, schemas = task.settings.identity, task.schemas
        own = joined(batch for _, batch in found)
        rows = lane_rows(own, partition, task.first, task.until, names, schemas)
        yield from ((partition, chunk) for chunk in cut(task, rows))
    for task in tasks[now:]:
        yield from ((task.partition, chunk) for chunk in cut(task, ()))


def _writer(tasks: list[LaneTask]) -> ShareWriter:
    [name] = set(ids_of([[task.partition for task in tasks]], tasks[0].settings).values())
    return ShareWriter(tasks, name)


def _reports(
    writer: ShareWriter, write: Callable[[], None], tasks: list[LaneTask], batches: Iterable[Any]
) -> list[LaneReport]:
    """What became of the lanes; a reason to stop is a result, since Spark would only repeat an exception."""
    try:
        write()
    except tuple(STOPS.values()) as error:
        writer.reports[0].note_stop(error)
        for _ in batches:  # Spark expects its input to be read to the end
            pass
    for report in writer.reports:
        keep_large(tasks[0].folder, report)
    return writer.reports
