"""The transactions: how they end, how long they take, and what they leave open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.grafana.board import board
from ops.grafana.panels import BAD, WARN, cloud, curves, figure, now, quantiles, query
from ops.grafana.queries import JOB, LANE, LANES, lane_rate, mean, newest, quantile, rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.builders.dashboard import Dashboard
    from ops.grafana.panels import Linked

COMMITTED = f'{LANES}, outcome=~"committed|unknown_committed"'
FAILED = f'{LANES}, outcome!~"committed|unknown_committed"'


def transactions(runbook: Mapping[str, str]) -> Dashboard:
    """Make the dashboard."""
    return board(
        "pipeline-transactions",
        "Pipeline: transactions",
        "One transaction holds a chunk's outputs, its dead letters and its lane record. It is committed as a whole, or "
        "nobody ever sees it.",
        {"Outcomes": [*_figures(), *_outcomes()], "Time": _time(), "Open transactions and runs": _open()},
        runbook,
    )


def _figures() -> list[Linked]:
    def ended(title: str, where: str, about: str, see: str, steps: Mapping[float, str] | None = None) -> Linked:
        asked = now(f"sum(increase(pipeline_transactions_total{{{where}}}[$__range]))")
        return figure(title, asked, about=about, see=see, steps=steps)

    def with_outcome(outcome: str) -> str:
        return f'{LANES}, outcome=~"{outcome}"'

    return [
        ended("Committed", COMMITTED, "Transactions of this process that readers can see.", "How to read this"),
        ended(
            "Aborted, failed or moved",
            with_outcome("aborted|failed|moved"),
            "Undone before the commit, and done again. Moved: the lane was not where recall saw it.",
            "PipelineTransactionsFailing",
            {1: WARN},
        ),
        ended(
            "Timed out",
            with_outcome("timed_out"),
            "The broker ended them, since they were open for longer than `transaction.timeout_ms`.",
            "PipelineTransactionsLong",
            {1: WARN},
        ),
        ended(
            "Fenced",
            with_outcome("fenced"),
            "Refused, because another producer took the lane's transactional id.",
            "PipelineFenced",
            {1: WARN, 3: BAD},
        ),
        ended(
            "Unknown, then settled",
            with_outcome("unknown_.*"),
            "The answer to the commit was lost. The next fence and recall told whether it stands; nothing was guessed.",
            "PipelineTransactionsFailing",
        ),
        figure(
            "Run",
            now(f"max(pipeline_run{{{LANES}}})"),
            about="Number of the newest run; each start takes a higher one, and the highest wins.",
            unit="none",
            see="PipelineRestarting",
        ),
    ]


def _outcomes() -> list[Linked]:
    return [
        curves(
            "Committed",
            query(lane_rate("pipeline_lane_transactions_total", *LANE), "{{topic}}/{{partition}}"),
            about="Committed transactions of each lane, from the lane records: exact under every crash.",
            unit="cps",
            see="PipelineNoProgress",
        ),
        curves(
            "Not committed",
            query(rate("pipeline_transactions_total", "outcome", where=FAILED), "{{outcome}}"),
            about="Attempts of this process that were undone and done again.",
            unit="cps",
            see="PipelineTransactionsFailing",
        ),
        curves(
            "Share that failed",
            query(
                f"{rate('pipeline_transactions_total', where=FAILED)} / ({rate('pipeline_transactions_total')} > 0)",
                "not committed",
            ),
            about="Of all attempts. Work done twice, not output written twice.",
            unit="percentunit",
            limit=0.1,
            see="PipelineTransactionsFailing",
        ),
    ]


def _time() -> list[Linked]:
    return [
        curves(
            "Duration",
            *quantiles("pipeline_transaction_duration_seconds"),
            about="From fence to commit. Readers wait as long; at `transaction.timeout_ms` the broker aborts.",
            unit="s",
            limit=15,
            see="PipelineTransactionsLong",
        ).sized(12),
        cloud(
            "Duration, all of them",
            "pipeline_transaction_duration_seconds",
            about="How many transactions took how long. Two bands are two kinds of transactions, or of brokers.",
            see="PipelineTransactionsLong",
        ),
        curves(
            "Phases, mean",
            query(mean("pipeline_transaction_phase_seconds", "phase"), "{{phase}}"),
            about="Where the time goes. fence: markers of a predecessor. recall: reading the lane record. judge: the "
            "ledger. produce: sending and flushing. commit: ending the transaction.",
            unit="s",
            stacked=True,
            see="PipelineTransactionsLong",
        ).sized(12),
        curves(
            "Phases, p99",
            query(quantile(0.99, "pipeline_transaction_phase_seconds", "phase"), "{{phase}}"),
            about="The slowest one in a hundred of each phase. The alert watches the phase commit.",
            unit="s",
            limit=1,
            see="PipelineCommitSlow",
        ).sized(12),
    ]


def _open() -> list[Linked]:
    return [
        curves(
            "Records behind an open transaction",
            query(newest("pipeline_open_transaction_records", where=JOB), "{{topic}}/{{partition}}"),
            about="What no read_committed reader sees yet, in source, outputs, dead letters and lanes. It comes and "
            "goes while transactions do; it must not stay.",
            unit="short",
            see="PipelineOpenTransaction",
        ),
        curves(
            "Run",
            query(newest("pipeline_run", "topic"), "{{topic}}"),
            about="Each step is a start. A staircase is a job that ends again and again, or two copies at odds.",
            unit="none",
            steps=True,
            see="PipelineRestarting",
        ),
        curves(
            "Since the clusters last answered",
            query(f"time() - {newest('pipeline_last_poll_timestamp_seconds', 'topic')}", "{{topic}}"),
            about="The clusters are asked for lag and open transactions every few seconds; no answer, no figures.",
            unit="s",
            limit=120,
            see="PipelineClusterSilent",
        ),
    ]
