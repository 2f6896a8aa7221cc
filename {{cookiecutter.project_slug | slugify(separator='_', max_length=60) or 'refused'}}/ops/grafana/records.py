"""Repeats and dead letters: what the ledger kept out, and what could not be processed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.grafana.board import board
from ops.grafana.panels import BAD, WARN, curves, figure, now, query, rows
from ops.grafana.queries import LANE, LANES, lane_growth, lane_rate, newest, rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.builders.dashboard import Dashboard
    from ops.grafana.panels import Linked

READ = lane_rate("pipeline_records_read_total")


def records(runbook: Mapping[str, str]) -> Dashboard:
    """Make the dashboard."""
    return board(
        "pipeline-records",
        "Pipeline: repeats and dead letters",
        "What an upstream sent again and the ledger kept out; what could not be processed and was set aside; what "
        "Spark replayed and the lanes passed over.",
        {"In the time in view": _sums(), "Repeats": _repeats(), "Dead letters": _dead_letters()},
        runbook,
    )


def _sums() -> list[Linked]:
    def hits(verdict: str, about: str, see: str, steps: Mapping[float, str] | None = None) -> Linked:
        where = f'{LANES}, verdict="{verdict}"'
        asked = now(lane_growth("pipeline_dedup_hits_total", where=where))
        return figure(verdict.capitalize().replace("-", " "), asked, about=about, see=see, steps=steps)

    return [
        hits("duplicate", "The same record again: kept out, and no more is to be done.", "PipelineDedupHitSurge"),
        hits(
            "stale",
            "Older than all that the ledger remembers: new or a repeat, nobody can tell.",
            "PipelineDeadLetters",
            {1: WARN},
        ),
        hits("old-epoch", "Sent by a producer whose successor has already spoken.", "PipelineDeadLetters", {1: WARN}),
        hits(
            "conflict",
            "The id of an earlier record with another content; the first one stands.",
            "PipelineDeadLetters",
            {1: BAD},
        ),
        figure(
            "Dead letters",
            now(lane_growth("pipeline_dead_letters_total")),
            about="Records written to the dead-letter topic, for whatever reason.",
            steps={1: WARN},
            see="PipelineDeadLetters",
        ),
        figure(
            "Replayed and skipped",
            now(f"sum(increase(pipeline_records_skipped_total{{{LANES}}}[$__range]))"),
            about="Rows that Spark read again after a crash or a retry, and that the lanes had already settled.",
            see="PipelineRestarting",
        ),
    ]


def _repeats() -> list[Linked]:
    return [
        curves(
            "Dedup hits by verdict",
            query(lane_rate("pipeline_dedup_hits_total", "verdict"), "{{verdict}}"),
            about="Records that the ledger judged to be other than fresh.",
            unit="cps",
            stacked=True,
            see="PipelineDedupHitSurge",
        ),
        curves(
            "Share of repeats",
            query(f"{lane_rate('pipeline_dedup_hits_total')} / ({READ} > 0)", "dedup hits of records read"),
            about="The alert asks for more than 5 %, and for three times the share of the last day.",
            unit="percentunit",
            limit=0.05,
            see="PipelineDedupHitSurge",
        ),
        curves(
            "Replayed and skipped",
            query(rate("pipeline_records_skipped_total", "topic"), "{{topic}}"),
            about="Rows below a lane's next offset: what a replay brings again. Each bump is a restart or a retry.",
            unit="cps",
            see="PipelineRestarting",
        ),
    ]


def _dead_letters() -> list[Linked]:
    return [
        curves(
            "Dead letters by reason",
            query(lane_rate("pipeline_dead_letters_total", "reason"), "{{reason}}"),
            about="identity: headers missing or malformed. decode: a value that the schema does not describe. The rest "
            "are verdicts of the ledger.",
            unit="cps",
            stacked=True,
            see="PipelineDeadLetters",
        ),
        curves(
            "Share of dead letters",
            query(f"{lane_rate('pipeline_dead_letters_total')} / ({READ} > 0)", "dead letters of records read"),
            about="Above 5 % it is no longer single records: the upstream, its schema or its headers have changed.",
            unit="percentunit",
            limit=0.05,
            see="PipelineDeadLetterFlood",
        ),
        curves(
            "Dropped on purpose",
            query(lane_rate("pipeline_records_dropped_total", "topic"), "{{topic}}"),
            about="Fresh records for which the transform gave no output. Only you can say how many are right.",
            unit="cps",
            see="How to read this",
        ),
        rows(
            "Dead letters by lane and reason",
            {
                "of all time": ("short", f"{newest('pipeline_dead_letters_total')} > 0"),
                "in the time in view": ("short", lane_growth("pipeline_dead_letters_total", *LANE, "reason")),
            },
            about="Where dead letters come from. One lane alone: look at its keys; all alike: look at the upstream.",
            by=(*LANE, "reason"),
            see="PipelineDeadLetters",
        ),
    ]
