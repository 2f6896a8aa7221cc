"""What all dashboards have in common: variables, restarts as annotations, links among them and into the runbook.

Guarantee: panels are numbered and laid out here alone, so ids are unique and nothing overlaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import text
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.text import TextMode
from ops.grafana.panels import SOURCE, query
from ops.grafana.queries import LANES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grafana_foundation_sdk.cog.builder import Builder
    from ops.grafana.panels import Linked

TAG = "pipeline"
RUNBOOK_UID = "pipeline-runbook"
# Each start takes a higher run number. True for one minute, on whatever address the new process answers.
RESTARTED = (
    f"max by (topic) (pipeline_run{{{LANES}}}) > max by (topic) (last_over_time(pipeline_run{{{LANES}}}[1h] offset 1m))"
)


def board(
    uid: str, title: str, description: str, sections: Mapping[str, Sequence[Linked]], runbook: Mapping[str, str]
) -> build.Dashboard:
    """A dashboard of titled rows of panels."""
    made = _frame(uid, title, description).time("now-1h", "now").refresh("30s")
    made.variables(_variables()).annotation(_restarts())
    places = {entry: place for place, entry in enumerate(runbook, start=1)}
    number = 0
    for row, panels in sections.items():
        number += 1
        made.with_row(build.Row(row).id(number))
        for panel, see in panels:
            number += 1
            made.with_panel(panel.id(number).links([_link(see, places[see])]))
    return made


def pages(uid: str, title: str, description: str, texts: Mapping[str, str]) -> build.Dashboard:
    """A dashboard of texts, two in a row."""
    made = _frame(uid, title, description)
    for number, (heading, content) in enumerate(texts.items(), start=1):
        page = text.Panel().id(number).title(heading).mode(TextMode.MARKDOWN).content(content)
        made.with_panel(page.span(12).height(14))
    return made


def _frame(uid: str, title: str, description: str) -> build.Dashboard:
    return (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            build.DashboardLink("Pipeline")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
    )


def _link(entry: str, place: int) -> build.DashboardLink:
    return (
        build.DashboardLink(f"Runbook: {entry}")
        .type(dashboard.DashboardLinkType.LINK)
        .url(f"/d/{RUNBOOK_UID}?viewPanel={place}")
    )


def _variables() -> list[Builder[dashboard.VariableModel]]:
    return [
        build.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _labels("job", "Job", "label_values(pipeline_info, job)"),
        _labels("topic", "Source topic", 'label_values(pipeline_records_read_total{job="$job"}, topic)')
        .multi(multi=True)
        .include_all(include_all=True)
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True)),
    ]


def _labels(name: str, label: str, asked: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": asked, "refId": name})
        .definition(asked)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    )


def _restarts() -> build.AnnotationQuery:
    return (
        build.AnnotationQuery()
        .name("Restarts")
        .datasource(SOURCE)
        .enable(enable=True)
        .icon_color("orange")
        .target(query(RESTARTED).ref_id("restarts"))
        .expr(RESTARTED)
        .step("30s")
        .title_format("A new run took over {{topic}}")
    )
