"""The lanes: each source partition by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.grafana.board import board
from ops.grafana.panels import curves, query, rows
from ops.grafana.queries import JOB, LANE, lane_rate, lane_total, newest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.builders.dashboard import Dashboard
    from ops.grafana.panels import Linked

NAME = "{{topic}}/{{partition}}"


def lanes(runbook: Mapping[str, str]) -> Dashboard:
    """Make the dashboard."""
    return board(
        "pipeline-lanes",
        "Pipeline: lanes",
        "One lane is one partition of the source topic. A lane that stands alone at the top of a panel has a hot key, "
        "a slow partition, or a record that it cannot pass.",
        {"Now": [_table()], "Progress": _progress(), "What the lanes hold": _held()},
        runbook,
    )


def _table() -> Linked:
    return rows(
        "Lanes",
        {
            "next offset": ("none", newest("pipeline_lane_next_offset")),
            "read": ("cps", lane_rate("pipeline_records_read_total", *LANE)),
            "lag": ("short", newest("pipeline_lag_records")),
            "lag in time": ("s", newest("pipeline_lag_seconds")),
            "transactions": ("short", newest("pipeline_lane_transactions_total")),
            "dedup hits": ("short", lane_total("pipeline_dedup_hits_total", *LANE)),
            "dead letters": ("short", lane_total("pipeline_dead_letters_total", *LANE)),
            "given up": ("short", newest("pipeline_records_lost_total")),
            "ledger": ("bytes", newest("pipeline_ledger_bytes")),
            "producers": ("short", newest("pipeline_ledger_producers")),
        },
        about="Where each lane stands. Counts are of all time: they ride in the lane record and survive every restart.",
        by=LANE,
        see="How to read this",
    )


def _progress() -> list[Linked]:
    return [
        curves(
            "Read by lane",
            query(lane_rate("pipeline_records_read_total", *LANE), NAME),
            about="Source records settled each second. Lanes differ as their keys do.",
            unit="cps",
            see="PipelineNoProgress",
        ),
        curves(
            "Lag by lane",
            query(newest("pipeline_lag_records"), NAME),
            about="Committed source records that are not settled yet.",
            unit="short",
            see="PipelineLagGrowing",
        ),
        curves(
            "Lag in seconds by lane",
            query(newest("pipeline_lag_seconds"), NAME),
            about="Age of the oldest source record that is not settled.",
            unit="s",
            limit=60,
            see="PipelineLagGrowing",
        ),
        curves(
            "Next offset",
            query(newest("pipeline_lane_next_offset"), NAME),
            about="The source offset at which a lane goes on. It never falls; level, with lag, is a lane that stands.",
            unit="none",
            steps=True,
            see="PipelineNoProgress",
        ).sized(12),
        curves(
            "Records behind an open transaction",
            query(newest("pipeline_open_transaction_records", where=JOB), NAME),
            about="High watermark less last stable offset of source, outputs, dead letters and lanes: what no "
            "read_committed reader sees yet. It comes and goes while transactions do; it must not stay.",
            unit="short",
            see="PipelineOpenTransaction",
        ).sized(12),
    ]


def _held() -> list[Linked]:
    return [
        curves(
            "Ledger by lane",
            query(newest("pipeline_ledger_bytes"), NAME),
            about="What a lane remembers of its producers, bounded by `dedup.ledger_bytes`: 896 KiB by default. "
            "At the bound, the longest silent producers keep only their highest id.",
            unit="bytes",
            limit=917_504,
            see="PipelineDeadLetters",
        ).sized(12),
        curves(
            "Producers by lane",
            query(newest("pipeline_ledger_producers"), NAME),
            about="Upstream producers that a lane remembers. If it grows with every start of an upstream, that one "
            "changes its name instead of its epoch.",
            unit="short",
            see="PipelineDedupHitSurge",
        ).sized(12),
    ]
