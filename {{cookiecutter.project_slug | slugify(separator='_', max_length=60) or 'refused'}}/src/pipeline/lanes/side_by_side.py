"""Several lanes in one task, each by transactions of its own: read one after another, written side by side.

So it is where delivery is less than exactly-once, and the output is outside of the transactions; their waits overlap.
A lane's writer is begun before its rows come, and has its fence behind it when they do.

Guarantee: a lane's rows reach its writer in order, up to the last, or the writer fails. An input that breaks in the
middle of a lane is never taken for its end: the lane would be moved past rows that nobody wrote.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.lanes.rows import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from pipeline.lanes.report import LaneReport
    from pipeline.lanes.task import LaneTask

    Run = Callable[[LaneTask, Iterator[Any]], LaneReport]

# More would only wait for each other: a lane's transaction is part work, part wait.
AT_ONCE = 4
# What lanes that are still being written may hold when rows of the next are taken; large records are waited for.
HELD_BYTES = 16 * 1024 * 1024
# What waits for a lane's writer at most. A bound in batches would be none: a record may have a megabyte.
WAITING_BYTES = 4 * 1024 * 1024


def side_by_side(tasks: Sequence[LaneTask], batches: Iterable[Any], run: Run) -> list[LaneReport]:
    """Write the lanes of a task, whose rows come in the order of `tasks`; returns their reports once all have ended."""
    with ThreadPoolExecutor(AT_ONCE, "lane") as pool:
        lanes = _Lanes(tasks, run, pool)
        try:
            lanes.begin()
            for partition, batch in by_lane(batches):
                lanes.take(partition, batch)
            lanes.finish()
        except BaseException as error:
            lanes.fail(error)
            raise
    return [future.result() for future in lanes.written]


def by_lane(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Record batches cut where the source partition changes, which their rows name."""
    for batch in batches:
        partitions = batch.column(COLUMNS.index("partition")).to_numpy()
        cuts = [*np.flatnonzero(np.diff(partitions, prepend=-1)).tolist(), len(partitions)]
        for start, end in pairwise(cuts):
            yield int(partitions[start]), batch.slice(start, end - start)


class _Lanes:
    """The lanes of a task: those behind, the one whose rows come now, and those to come, the next of them begun."""

    def __init__(self, tasks: Sequence[LaneTask], run: Run, pool: ThreadPoolExecutor) -> None:
        self._tasks = tasks
        self._places = {task.partition: place for place, task in enumerate(tasks)}
        self._now = 0
        self._run = run
        self._pool = pool
        self._feeds: list[Feed] = []
        self.written: list[Future[LaneReport]] = []

    def begin(self) -> None:
        """The writers of the lane whose rows come now, and of the next; in order, so that none waits for one behind."""
        for task in self._tasks[len(self._feeds) : self._now + AT_ONCE]:
            feed = Feed()
            self._feeds.append(feed)
            self.written.append(self._pool.submit(_written, self._run, task, feed))

    def take(self, partition: int, batch: Any) -> None:
        """Hand a batch to its lane. One of a lane that is not here, or is over, is for the writer to refuse."""
        while self._now < self._places.get(partition, -1):  # those in between have no rows
            self._turn()
        self._feeds[self._now].put(batch)

    def finish(self) -> None:
        """The input is over: the remaining lanes have no rows, and advance all the same."""
        while self._now < len(self._tasks) - 1:
            self._turn()
        self._feeds[self._now].close()

    def fail(self, error: BaseException) -> None:
        """The input is broken: whoever still waits for rows must not take this for their end."""
        for feed in self._feeds[self._now :]:
            feed.fail(error)
        for future in self.written[self._now :]:
            future.cancel()  # those that wait for a thread: they would fence a lane for nothing

    def _turn(self) -> None:
        """All rows of a lane have come: turn to the next."""
        self._feeds[self._now].close()
        self._wait_for_room()
        self._now += 1
        self.begin()

    def _wait_for_room(self) -> None:
        """For the oldest lanes first, which end first; for none whose rows are still to come."""
        for future in self.written[: self._now + 1]:
            if self._held() <= HELD_BYTES:
                return
            wait([future])

    def _held(self) -> int:
        return sum(feed.size for feed, future in zip(self._feeds, self.written, strict=True) if not future.done())


def _written(run: Run, task: LaneTask, feed: Feed) -> LaneReport:
    try:
        return run(task, iter(feed))
    finally:
        feed.leave()


class Feed:
    """Batches on their way to the writer of a lane, with room for few."""

    def __init__(self) -> None:
        """Empty, and open."""
        self._changed = threading.Condition()
        self._batches: deque[Any] = deque()
        self._waiting = 0
        self._closed = self._left = False
        self._error: BaseException | None = None
        self.size = 0  # of all that was ever put in

    def put(self, batch: Any) -> None:
        """Add a batch as soon as there is room; for a writer that has left it means nothing."""
        size = batch.get_total_buffer_size()
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._waiting + size <= WAITING_BYTES or not self._batches)
            if not self._left:
                self._batches.append((batch, size))
                self._waiting += size
                self.size += size
                self._changed.notify_all()

    def close(self) -> None:
        """No more will come: this is the end of the lane's rows."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """No more will come, but this is not the end."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def leave(self) -> None:
        """The writer has ended, and whoever fills this must not wait for it."""
        with self._changed:
            self._left = True
            self._batches.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        """Up to the end, or to the error."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batches or self._closed or self._error is not None)
                if self._error is not None and not self._closed:
                    msg = "the rows of the lane broke off"
                    raise RuntimeError(msg) from self._error
                if not self._batches:
                    return
                batch, size = self._batches.popleft()
                self._waiting -= size
                self._changed.notify_all()
            yield batch
