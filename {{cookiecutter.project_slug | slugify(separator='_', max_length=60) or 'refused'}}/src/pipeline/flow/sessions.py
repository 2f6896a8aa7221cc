"""Sessions are merged before anything is decided by their start or end.

Spark puts a condition on the columns that a frame is grouped by below the grouping. For a session these are not yet the
session's: each event has a window of its own there, and those that the condition takes out are missing in the merge.
So the session is cut short, without an error, in a stream and in a plain batch alike.

Guarantee: a condition that Spark would move so is refused, before a single event is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

MARK = "spark.sessionWindow"  # how Spark marks the column of a session
SESSION, GROUP, OTHER = "session", "group", "other"
NOWHERE = -1  # no column: for what was counted


def check_sessions(frame: DataFrame) -> None:
    """Refuse conditions on the start or end of sessions, and on what is made of these and of grouping columns alone."""
    found = _refused(frame._jdf.queryExecution().analyzed())  # noqa: SLF001  the plan has no Python face
    if found is not None:
        msg = (
            f"windows: the condition {found} is on the start or end of a window of spans(...) or session_window(...); "
            "Spark would apply it before events are merged to sessions, and cut these short; put it on the output "
            "with .when(...), which is applied behind the merge"
        )
        raise SafeStop(msg)


def _refused(plan: Any) -> str | None:
    """The first condition of that kind, from the bottom up."""
    made_of: dict[int, set[str]] = {}
    for node in _upwards(plan):
        name = str(node.nodeName())
        if name == "Aggregate":
            _note_groups(node, made_of)
        for made, sources in _made(node, name):
            made_of.setdefault(made, set().union(*(made_of.get(one, {OTHER}) for one in sources)))
        condition = _condition(node, name)
        for part in _parts(condition) if condition is not None else ():
            if _is_moved(part, made_of):
                return str(part.sql())
    return None


def _upwards(plan: Any) -> Iterator[Any]:
    for child in _items(plan.children()):
        yield from _upwards(child)
    yield plan


def _note_groups(node: Any, made_of: dict[int, set[str]]) -> None:
    """The columns that a session is grouped with; without a session, nothing is cut by such a condition."""
    groups = [one for expression in _items(node.groupingExpressions()) for one in _items(expression.references())]
    sessions = {_id(one) for one in groups if one.metadata().contains(MARK)}
    if sessions:
        made_of.update({_id(one): {SESSION if _id(one) in sessions else GROUP} for one in groups})


def _made(node: Any, name: str) -> Iterator[tuple[int, list[int]]]:
    """Columns that a node makes, and of which others; what a generator makes, no condition passes."""
    lists = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
    for one in _items(getattr(node, lists[name])()) if name in lists else ():
        is_counted = name == "Aggregate" and _is_counted(one)
        yield _id(one), [NOWHERE] if is_counted else [_id(other) for other in _items(one.references())]


def _condition(node: Any, name: str) -> Any:
    if name == "Filter":
        return node.condition()
    return node.condition().get() if name == "Join" and node.condition().isDefined() else None


def _parts(condition: Any) -> Iterator[Any]:
    """Spark moves each part of a conjunction on its own."""
    if str(condition.nodeName()) == "And":
        yield from _parts(condition.left())
        yield from _parts(condition.right())
    else:
        yield condition


def _is_moved(part: Any, made_of: Mapping[int, set[str]]) -> bool:
    kinds = set().union(*(made_of.get(_id(one), {OTHER}) for one in _items(part.references())))
    return SESSION in kinds and OTHER not in kinds


def _is_counted(expression: Any) -> bool:
    """Whether it is made by an aggregate: a count has no columns, and a maximum may be one of grouping columns."""
    is_aggregate = str(expression.getClass().getSimpleName()) == "AggregateExpression"
    return is_aggregate or any(_is_counted(one) for one in _items(expression.children()))


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _items(sequence: Any) -> list[Any]:
    items = sequence.toSeq() if hasattr(sequence, "baseSet") else sequence
    return [items.apply(place) for place in range(items.size())]
