"""The audit as people see it: progress while it reads, a table, and one line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline.flow.expected import expected_outputs
from pipeline.flow.recomputed import recomputed
from pipeline.observe.audit import audit, ranges
from pipeline.observe.audit.shuffled import audit_shuffled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from pipeline.observe.audit import AuditResult
    from pipeline.settings import Settings


def run_audit(
    settings: Settings,
    console: Console,
    start_offsets: Mapping[tuple[str, int], int] | None = None,
    *,
    accept_repeats: bool = False,
) -> AuditResult:
    """Audit, and show it; `start_offsets` as `audit` takes them, `accept_repeats` as `audit_shuffled` does."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} records"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def progress(stage: str, records: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(f"audit: {stage}", total=None)
            bars.update(tasks[stage], completed=records)

        if settings.shuffled:
            progress("windows, computed anew", 0)
            result = audit_shuffled(settings, partial(recomputed, settings), accept_repeats=accept_repeats)
        else:
            result = audit(
                settings,
                lambda: expected_outputs(settings, ranges(settings)),
                start_offsets=start_offsets,
                progress=progress,
            )
    console.print(result.table())
    for remark in result.remarks():
        console.print(remark)
    console.print(result.line, highlight=False)
    return result
