"""The plan whitelist: a transform may only compute, never remove, multiply, move or reorder rows.

Guarantee: by construction each source record reaches the lane writer exactly once and in order, whatever the user's
function does; anything else is refused at start, and again if a batch's plan differs (a table that grew can turn a
broadcast join into a sort-merge join), with an error that names the operator and shows how to write it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.errors import SafeStop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a batch's own rows come from; a user's table may be of the same kind.
SOURCE_SCAN = "Scan ExistingRDD"
# Operators that keep rows as they are; code generation wraps them without changing them.
KEEPS_ROWS = frozenset({"Project", "BatchEvalPython", "ArrowEvalPython", "InputAdapter", SOURCE_SCAN})
ARROW_STAGE = "MapInArrow"
# What a description may hold besides, before Spark has planned it.
DESCRIBES = frozenset({"Project", "SubqueryAlias"})
BROADCAST_JOINS = frozenset({"BroadcastHashJoin", "BroadcastNestedLoopJoin"})

CONDITION = "to drop an event write `output(...).when(condition)`; an event without outputs is dropped on purpose"
SEVERAL = "to write several records pass several outputs to `emit(...)`, each with its own `.when(condition)`"
SHUFFLE = 'results of a shuffle have no source offset: for windows and sums use flow.path = "windows" and windows.py'
JOIN = "write `events.join(broadcast(table), on=..., how='left')`: events on the left, one match at most"
REMEDIES = {
    "Filter": CONDITION,
    "Sample": CONDITION,
    "Generate": SEVERAL,
    "Expand": SEVERAL,
    "Union": SEVERAL,
    "CollectLimit": CONDITION,
    "LocalLimit": CONDITION,
    "GlobalLimit": CONDITION,
    "Sort": "rows must stay in offset order",
    "TakeOrderedAndProject": "rows must stay in offset order",
    "Exchange": SHUFFLE,
    "Coalesce": "each lane needs its own task",
    "HashAggregate": SHUFFLE,
    "ObjectHashAggregate": SHUFFLE,
    "SortAggregate": SHUFFLE,
    "Window": SHUFFLE,
    "SortMergeJoin": JOIN,
    "ShuffledHashJoin": JOIN,
    "CartesianProduct": JOIN,
    **dict.fromkeys(BROADCAST_JOINS, JOIN),
    "MapInPandas": "use columns or a UDF: a function over whole batches may lose rows",
    ARROW_STAGE: "use columns or a UDF: a function over whole batches may lose rows",
    "InMemoryTableScan": "do not cache events: a batch is read once",
    SOURCE_SCAN: "return `events` with more columns; rows of another frame have no source offset",
}


def check_plan(frame: DataFrame, source: DataFrame, *, stages: int = 0) -> None:
    """Refuse a frame that is not made of the source's rows, each in its place.

    `stages` are those of our own directly above the source: the codec's.
    """
    name = refused(_physical(frame), _scan(_physical(source)), stages=stages)
    if name is not None:
        raise SafeStop(_refusal(name))


def refused(plan: Any, scan: int, *, stages: int = 0) -> str | None:
    """The first operator on the events' path, from the top down, that may not keep rows; it must end at `scan`."""
    joined = None
    while True:
        name = str(plan.nodeName())
        if _is_ours(plan, name, stages):
            pass
        elif name in BROADCAST_JOINS:
            # The build side is a table of its own; events must be streamed past it and all be kept.
            if str(plan.joinType()) != "LeftOuter" or str(plan.buildSide()) != "BuildRight":
                return name
            joined = name
        elif name not in KEEPS_ROWS and not name.startswith("WholeStageCodegen"):
            return name
        if plan.children().isEmpty():
            return None if _scan(plan) == scan else joined or name
        plan = plan.children().head()


def check_described(frame: DataFrame, *, stages: int = 0) -> None:
    """Refuse a stream's frame that is not made of the source's rows alone: its plan is not asked for in each batch."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001  the plan has no Python face
    while not plan.children().isEmpty():
        name = str(plan.nodeName())
        if not _is_ours(plan, name, stages) and (name not in DESCRIBES or plan.children().size() != 1):
            raise SafeStop(_refusal(name))
        plan = plan.children().head()


def _refusal(name: str) -> str:
    remedy = REMEDIES.get(name, "only operators that keep each row in its place are allowed")
    return f"transform: the operator {name} is not allowed between source and sink: {remedy}"


def _is_ours(plan: Any, name: str, stages: int) -> bool:
    """One of the lowest stages over Arrow batches: nothing of the user's stands between them and the source."""
    return name == ARROW_STAGE and _arrow_stages(plan) <= stages


def _arrow_stages(plan: Any) -> int:
    """How many stages of this kind there are from here down."""
    count = 0
    while True:
        count += str(plan.nodeName()) == ARROW_STAGE
        if plan.children().isEmpty():
            return count
        plan = plan.children().head()


def _physical(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().executedPlan()  # noqa: SLF001  the physical plan has no Python face


def _scan(plan: Any) -> int:
    """The id of the rows at the end of a plan's streamed side."""
    while not plan.children().isEmpty():
        plan = plan.children().head()
    return int(plan.rdd().id())
