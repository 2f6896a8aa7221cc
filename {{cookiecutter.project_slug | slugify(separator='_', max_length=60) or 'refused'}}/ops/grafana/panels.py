"""The few kinds of panels that the dashboards are made of.

Guarantee: every panel has a description, a unit, thresholds, the data source of the variable, and an entry of the
runbook that says what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as model
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from ops.grafana.queries import LANES, quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from grafana_foundation_sdk.cog.builder import Builder
    from grafana_foundation_sdk.cog.variants import Dataquery

Panel = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel
Query = prometheus.Dataquery

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
GOOD, WARN, BAD, PLAIN = "green", "orange", "red", "blue"
REFS = "ABCDEFGHIJKL"


class Linked(NamedTuple):
    """A panel and the entry of the runbook that belongs to it."""

    panel: Panel
    see: str

    def sized(self, width: int, height: int | None = None) -> Self:
        """Another size than its kind has; the grid is 24 wide."""
        self.panel.span(width)
        if height is not None:
            self.panel.height(height)
        return self


def query(expr: str, legend: str = "") -> Query:
    """One query over the time in view."""
    return Query().expr(expr).legend_format(legend or "__auto").datasource(SOURCE).range()


def now(expr: str) -> Query:
    """One query of the end of the time in view."""
    return Query().expr(expr).datasource(SOURCE).instant()


def quantiles(histogram: str, where: str = LANES, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[Query]:
    """Some quantiles of a histogram."""
    return [query(quantile(share, histogram, where=where), f"p{share * 100:g}") for share in shares]


def curves(  # noqa: PLR0913  all but the queries by name
    title: str,
    *queries: Query,
    about: str,
    unit: str,
    see: str,
    limit: float | None = None,
    stacked: bool = False,
    steps: bool = False,
) -> Linked:
    """Figures over time; `limit` is the bound of the alert on the same figure, drawn as a dashed line."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .unit(unit)
        .min(0)
        .datasource(SOURCE)
        .targets(_named(queries))
        .thresholds(colours({} if limit is None else {limit: BAD}))
        .color_scheme(build.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(25 if stacked else 8)
        .show_points(model.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(model.LegendDisplayMode.TABLE)
            .placement(model.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI).sort(model.SortOrder.DESCENDING))
    )
    if limit is not None:
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(model.GraphThresholdsStyleMode.DASHED))
    if stacked:
        panel.stacking(common.StackingConfig().mode(model.StackingMode.NORMAL))
    if steps:
        panel.line_interpolation(model.LineInterpolation.STEP_AFTER)
    return Linked(panel.span(8).height(9), see)


def figure(  # noqa: PLR0913  all but the query by name
    title: str, asked: Query, *, about: str, see: str, unit: str = "short", steps: Mapping[float, str] | None = None
) -> Linked:
    """One number; `steps` are the values from which it has another colour."""
    strong = model.BigValueColorMode.BACKGROUND_SOLID if steps else model.BigValueColorMode.VALUE
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .unit(unit)
        .datasource(SOURCE)
        .targets(_named([asked]))
        .thresholds(colours(steps or {}))
        .color_scheme(build.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
        .color_mode(strong)
        .graph_mode(model.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    return Linked(panel.span(4).height(4), see)


def rows(title: str, columns: Mapping[str, tuple[str, str]], *, about: str, see: str, by: Sequence[str]) -> Linked:
    """A table with one row for each set of labels; `columns` are unit and query by heading."""
    panel = table.Panel().title(title).description(about).unit("short").datasource(SOURCE).thresholds(colours({}))
    names = {f"Value #{ref}": heading for ref, heading in zip(REFS, columns, strict=False)}
    panel.targets(_named([now(expr).format(PromQueryFormat.TABLE) for _, expr in columns.values()]))
    for heading, (unit, _) in columns.items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue("unit", unit)])
    order = {name: place for place, name in enumerate([*by, *names])}
    organised = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    panel.with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    panel.with_transformation(dashboard.DataTransformerConfig("organize", options=organised))
    return Linked(panel.span(24).height(10), see)


def cloud(title: str, histogram: str, *, about: str, see: str) -> Linked:
    """A histogram over time, bucket by bucket."""
    counts = query(f"sum by (le) (increase({histogram}_bucket{{{LANES}}}[$__rate_interval]))", "{{le}}")
    panel = (
        heatmap.Panel()
        .title(title)
        .description(about)
        .unit("short")
        .datasource(SOURCE)
        .targets(_named([counts.format(PromQueryFormat.HEATMAP)]))
        .thresholds(colours({}))
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .y_axis(heatmap.YAxisConfig().unit("s"))
    )
    return Linked(panel.span(12).height(9), see)


def colours(steps: Mapping[float, str]) -> build.ThresholdsConfig:
    """Good until the first step; plain, where nothing is good or bad."""
    found = [dashboard.Threshold(value=None, color=GOOD if steps else PLAIN)]
    found += [dashboard.Threshold(value=value, color=colour) for value, colour in steps.items()]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(found)


def _named(queries: Sequence[Query]) -> list[Builder[Dataquery]]:
    return [asked.ref_id(ref) for ref, asked in zip(REFS, queries, strict=False)]
