"""Doctor: are machine, clusters, topics and lanes fit for the job? Each line ok, warn or fail, with its remedy.

Guarantee: it writes nothing and fences nobody, so it may run beside the job; a check that cannot be made says so and
does not prevent the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.errors import PipelineError
from pipeline.observe.doctor import access, clusters, lanes, machine, reference, source
from pipeline.observe.doctor.finding import Finding, fail, of_error, warn
from pipeline.observe.doctor.site import NotThere, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from pipeline.settings import Settings

__all__ = ["Finding", "examine", "show"]

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def examine(settings: Settings) -> list[Finding]:
    """Make every check that can be made."""
    site = Site(settings)
    findings: list[Finding] = []
    unmade: dict[str, list[str]] = {}
    for what, check in CHECKS.items():
        # Found lines are kept, also those of a check that breaks off in the middle.
        try:
            findings.extend(check(site))
        except NotThere as error:
            unmade.setdefault(str(error), []).append(what)
        except PipelineError as error:
            findings.append(of_error(what, error))
        except Exception as error:  # noqa: BLE001  a defect in one check must not hide what the others found
            findings.append(fail(what, f"could not be checked: {error!r}", "report this as a defect"))
    for cause, names in unmade.items():
        findings.append(
            warn("not checked", f"{', '.join(names)}: {cause}", "see above, then run `pipeline doctor` again")
        )
    return findings


# In the order in which a person would look; a check that nothing can come of is left out where its topic is missing.
CHECKS: dict[str, Callable[[Site], Iterator[Finding]]] = {
    "Python": machine.python,
    "Java": machine.java_version,
    "packages": machine.packages,
    "Spark connector": machine.connector,
    "schema": machine.schema,
    "delivery": machine.delivery,
    "dedup": machine.dedup,
    "source cluster": clusters.source_cluster,
    "output cluster": clusters.output_cluster,
    "locks": access.locks,
    "permissions": access.allowed,
    "source topic": source.source_topic,
    "source retention": source.retention,
    "clocks": source.clocks,
    "timestamps": source.timestamps,
    "keys and identity headers": source.records,
    "reference topic": reference.reference_topic,
    "output topics": clusters.output_topics,
    "lane topic": clusters.lane_topic,
    "lanes": lanes.lanes,
    "lane record size": clusters.record_size,
    "replication": clusters.replication,
    "leader election": clusters.leader_election,
    "transaction time-out": clusters.transaction_timeout,
    "open transactions": clusters.open_transactions,
    "isolation": source.isolation,
}


def show(findings: list[Finding], console: Console) -> None:
    """Print a line for each finding, and its remedy below where there is something to do."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        # Text, not markup: a topic's partition in brackets is no style.
        table.add_row(Text(finding.state, COLOURS[finding.state]), Text(finding.what), Text(finding.detail))
        if finding.state != "ok":
            table.add_row("", "", Padding(Text(f"-> {finding.remedy}", "italic"), (0, 0, 0, 2)))
    console.print(table)
    counts = {state: sum(finding.state == state for finding in findings) for state in COLOURS}
    console.print(", ".join(f"{count} {state}" for state, count in counts.items()), highlight=False)
