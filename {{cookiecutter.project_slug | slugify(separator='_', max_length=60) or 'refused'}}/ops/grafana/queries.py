"""PromQL that the dashboards share.

Guarantee: figures of lanes are the newest ones of all copies of the job, never their sum; figures of a process add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

JOB = 'job="$job"'
LANES = f'{JOB}, topic=~"$topic"'
LANE = ("topic", "partition")
# What a lane counter tells apart beside the lane; lost in a maximum, only the largest of them would be counted.
KINDS = {"pipeline_dedup_hits_total": "verdict", "pipeline_dead_letters_total": "reason"}


def newest(metric: str, *by: str, where: str = LANES) -> str:
    """A figure of each lane: two copies of the job export the same one, the newest is the highest."""
    return f"max by ({', '.join(by or _labels(metric))}) ({metric}{{{where}}})"


def lane_total(metric: str, *by: str) -> str:
    """A lane counter as it stands, added up over lanes, not over copies of the job."""
    return f"{_sum(by)} ({newest(metric)})"


def lane_rate(metric: str, *by: str, where: str = LANES) -> str:
    """The rate of a lane counter, added up over lanes, not over copies of the job."""
    keep = ", ".join(_labels(metric))
    return f"{_sum(by)} (max by ({keep}) (rate({metric}{{{where}}}[$__rate_interval])))"


def lane_growth(metric: str, *by: str, where: str = LANES) -> str:
    """By how much a lane counter grew in the time in view: exact, across restarts, and also while the job is down."""
    keep, series = ", ".join(_labels(metric)), f"{metric}{{{where}}}[$__range]"
    return f"{_sum(by)} (max by ({keep}) (max_over_time({series})) - min by ({keep}) (min_over_time({series})))"


def rate(metric: str, *by: str, where: str = LANES) -> str:
    """The rate of what one process counts; copies of the job add up."""
    return f"{_sum(by)} (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, *by: str, where: str = LANES) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', 'le', *by, where=where)})"


def mean(histogram: str, *by: str) -> str:
    """The mean of a histogram; nothing where nothing happened."""
    return f"{rate(f'{histogram}_sum', *by)} / ({rate(f'{histogram}_count', *by)} > 0)"


def _sum(by: Sequence[str]) -> str:
    return f"sum by ({', '.join(by)})" if by else "sum"


def _labels(metric: str) -> tuple[str, ...]:
    return (*LANE, KINDS[metric]) if metric in KINDS else LANE
