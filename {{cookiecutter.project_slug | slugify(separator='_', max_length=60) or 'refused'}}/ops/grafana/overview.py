"""The overview: is it exactly once, is it keeping up, what does it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.grafana.board import board
from ops.grafana.panels import BAD, GOOD, WARN, curves, figure, now, quantiles, query
from ops.grafana.queries import JOB, LANES, lane_growth, lane_rate, lane_total, mean, newest, rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.builders.dashboard import Dashboard
    from ops.grafana.panels import Linked

# Dead letters that the ledger did not judge; those it judged are dedup hits already.
UNJUDGED = f'{LANES}, reason=~"identity|decode"'


def overview(runbook: Mapping[str, str]) -> Dashboard:
    """Make the dashboard."""
    return board(
        "pipeline-overview",
        "Pipeline: overview",
        "Is it exactly once, is it keeping up, what does it cost. What proves the first is `pipeline audit`; here "
        "stand the faults that were absorbed, and those that could not be.",
        {
            "Is it exactly once?": [*_health(), *_absorbed(), _fates()],
            "Is it keeping up?": _keeping_up(),
            "What does it cost?": _cost(),
        },
        runbook,
    )


def _health() -> list[Linked]:
    return [
        figure(
            "Copies that answer",
            now(f"sum(up{{{JOB}}})"),
            about="Processes that Prometheus can scrape. One is right; two for a moment, while a new run takes over.",
            steps={0: BAD, 1: GOOD, 2: WARN},
            see="PipelineJobDown",
        ),
        figure(
            "Alerts firing",
            now(f'count(ALERTS{{{JOB}, alertstate="firing"}}) or vector(0)'),
            about="Alerts of this job that fire now. Each has an entry in the runbook.",
            steps={1: BAD},
            see="How to read this",
        ),
        figure(
            "Since the last commit",
            now(f"time() - max(pipeline_last_progress_timestamp_seconds{{{LANES}}})"),
            about="Time since any lane committed. Without new source records this grows, and nothing is wrong.",
            unit="s",
            see="PipelineNoProgress",
        ),
    ]


def _absorbed() -> list[Linked]:
    return [
        figure(
            "Repeats kept out",
            now(lane_growth("pipeline_dedup_hits_total")),
            about="Dedup hits in the time in view: what an upstream sent again, and what has no second effect.",
            see="PipelineDedupHitSurge",
        ),
        figure(
            "Dead letters",
            now(lane_growth("pipeline_dead_letters_total")),
            about="Source records in the time in view that could not be processed. They are kept, with the reason.",
            steps={1: WARN},
            see="PipelineDeadLetters",
        ),
        figure(
            "Records given up",
            now(lane_total("pipeline_records_lost_total")),
            about="Source offsets, of all time, that retention deleted before they were read. Somebody accepted it.",
            steps={1: BAD},
            see="PipelineRecordsLost",
        ),
    ]


def _fates() -> Linked:
    read = lane_rate("pipeline_records_read_total")
    dropped = lane_rate("pipeline_records_dropped_total")
    hits = lane_rate("pipeline_dedup_hits_total")
    unusable = lane_rate("pipeline_dead_letters_total", where=UNJUDGED)
    return curves(
        "What becomes of source records",
        query(f"{read} - {dropped} - {hits} - {unusable}", "processed"),
        query(dropped, "dropped on purpose"),
        query(lane_rate("pipeline_dedup_hits_total", "verdict"), "dedup hit: {{verdict}}"),
        query(lane_rate("pipeline_dead_letters_total", "reason", where=UNJUDGED), "dead letter: {{reason}}"),
        about="Every record that was read has one fate; together they are all that was read. Figures come from the "
        "lane records, in the same transaction as the output: no retry counts twice.",
        unit="cps",
        stacked=True,
        see="How to read this",
    ).sized(24)


def _keeping_up() -> list[Linked]:
    return [
        curves(
            "Throughput",
            query(lane_rate("pipeline_records_read_total"), "read"),
            query(lane_rate("pipeline_records_written_total"), "written"),
            about="Source records settled and output records written, each second. One source record may write none or "
            "several.",
            unit="cps",
            see="PipelineNoProgress",
        ).sized(12),
        curves(
            "End-to-end latency",
            *quantiles("pipeline_end_to_end_latency_seconds"),
            about="From the timestamp of a source record to the commit of its outputs. While a backlog is worked off, "
            "this is the age of the backlog.",
            unit="s",
            see="PipelineLagGrowing",
        ).sized(12),
        curves(
            "Lag in records",
            query(f"sum by (topic) ({newest('pipeline_lag_records')})", "{{topic}}"),
            about="Committed source records that are not settled yet, all lanes together. Records behind an open "
            "upstream transaction are not counted: nobody may read them.",
            unit="short",
            see="PipelineLagGrowing",
        ).sized(12),
        curves(
            "Lag in seconds",
            query(newest("pipeline_lag_seconds", "topic"), "{{topic}}, worst lane"),
            about="Age of the oldest source record that is not settled. The alert asks also whether the lag grows.",
            unit="s",
            limit=60,
            see="PipelineLagGrowing",
        ).sized(12),
    ]


def _cost() -> list[Linked]:
    return [
        curves(
            "Commit latency",
            *quantiles("pipeline_transaction_phase_seconds", f'{LANES}, phase="commit"'),
            about="How long the broker takes to end a transaction.",
            unit="s",
            limit=1,
            see="PipelineCommitSlow",
        ),
        curves(
            "Where the time of a transaction goes",
            query(mean("pipeline_transaction_phase_seconds", "phase"), "{{phase}}"),
            about="Mean seconds of each phase of the committed transactions.",
            unit="s",
            stacked=True,
            see="PipelineTransactionsLong",
        ),
        curves(
            "Batch duration",
            *quantiles("pipeline_batch_duration_seconds"),
            about="A micro-batch from its plan to the last report of its lanes.",
            unit="s",
            see="PipelineLagGrowing",
        ),
        curves(
            "Transactions",
            query(rate("pipeline_transactions_total", "outcome"), "{{outcome}}"),
            about="Attempts to write a chunk, by outcome. Only committed ones are ever seen by a reader.",
            unit="cps",
            see="PipelineTransactionsFailing",
        ),
        curves(
            "Records in a transaction",
            query(
                f"{lane_rate('pipeline_records_read_total')} / ({lane_rate('pipeline_lane_transactions_total')} > 0)",
                "source records",
            ),
            about="Mean size of the committed transactions. The more records share one, the less each costs; "
            "`transaction.chunk_rows` bounds it.",
            unit="short",
            see="PipelineCommitSlow",
        ),
        curves(
            "Ledgers",
            query(f"sum by (topic) ({newest('pipeline_ledger_bytes')})", "{{topic}}"),
            about="What all lanes remember of their producers; a ledger rides in every lane record.",
            unit="bytes",
            see="PipelineDeadLetters",
        ),
    ]
