"""`window` dedup: which copy of each id was written, and which ids were written more often than the horizon allows.

Guarantee: an id may be there again only if its copies were written further apart than the horizon. When they were
written is told by the timestamps of the results, which is a little after the time of their batch; an id is held for
about twice the horizon, so that no delay below a horizon makes a copy look too early.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Copy = tuple[Any, ...]  # the outputs of one source record


@dataclass
class Chosen:
    """What must be there, one copy of each id and more where there are more, and what is said of the repeats."""

    outputs: Counter[Any] = field(default_factory=Counter)
    kept: int = 0  # copies, apart from those that have no outputs: of them no topic tells how often they came
    repeated: int = 0  # ids of which more than one copy is there
    too_soon: list[Any] = field(default_factory=list)  # those of them whose copies are not a horizon apart


def chosen(by_id: Mapping[Any, Sequence[Copy]], times: Mapping[Any, Sequence[int]], horizon_ms: int) -> Chosen:
    """Each id once, and again for what is there beyond that; `times` are when each output was written."""
    result = Chosen()
    taken: dict[Any, list[Copy]] = {}
    spare: dict[Any, list[Copy]] = {}
    left = Counter({one: len(moments) for one, moments in times.items()})
    for name, copies in by_id.items():
        told = [copy for copy in copies if copy]
        first = next((copy for copy in told if _fits(copy, left)), None)
        if first is None and told and len(told) == len(copies):
            first = told[0]  # lost
        if first is not None:
            told.remove(first)
            taken[name], spare[name] = [first], told
            left.subtract(first)
    for name, copies in spare.items():  # only now: another id may have outputs of the same content
        for copy in copies:
            if _fits(copy, left):
                taken[name].append(copy)
                left.subtract(copy)
    for copies in taken.values():
        result.kept += len(copies)
        for copy in copies:
            result.outputs.update(copy)
    _time(result, taken, times, horizon_ms)
    return result


def _fits(copy: Copy, left: Counter[Any]) -> bool:
    return all(left[one] >= count for one, count in Counter(copy).items())


def _time(
    result: Chosen, taken: Mapping[Any, Sequence[Copy]], times: Mapping[Any, Sequence[int]], horizon_ms: int
) -> None:
    """Look at the ids that are there more than once: no more of their outputs within a horizon than ids explain."""
    owners: Counter[Any] = Counter()  # how often an output may be there at once
    for copies in taken.values():
        owners.update(_most(copies))
    for name, copies in taken.items():
        if len(copies) < 2:  # noqa: PLR2004  one is no repeat
            continue
        result.repeated += 1
        # An output that no other id has tells most.
        witnesses = {min(copy, key=lambda one: owners[one]) for copy in copies}
        own = _most(copies)
        others = sum(owners[one] - own[one] for one in witnesses)
        moments = sorted(moment for one in witnesses for moment in times.get(one, ()))
        if _crowded(moments, others + max(own[one] for one in witnesses), horizon_ms):
            result.too_soon.append(name)


def _most(copies: Sequence[Copy]) -> Counter[Any]:
    """How often each output stands in the one copy that has most of it."""
    most: Counter[Any] = Counter()
    for copy in copies:
        most |= Counter(copy)
    return most


def _crowded(moments: Sequence[int], allowed: int, horizon_ms: int) -> bool:
    """Whether more than so many lie within one horizon."""
    return any(later - first <= horizon_ms for first, later in zip(moments, moments[allowed:], strict=False))
