"""The arithmetic of the benchmarks: quantiles, spreads, rates, and a fit by least squares that tells its residuals.

Pure functions on plain numbers; `tests/unit/test_bench_figures.py` checks each against figures worked out by hand.
"""

from __future__ import annotations

import random
import statistics
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Choice = TypeVar("Choice")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed: one that was seen, none between."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Median, lowest and highest of repeats, and how many they are."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "runs": len(values)}


def in_turn(choices: Sequence[Choice], rounds: int) -> Iterator[Choice]:
    """All choices in each round, in another order each time: a machine that is slower for a minute favours none."""
    chance = random.Random(1)  # noqa: S311  the same orders in each run
    for _ in range(rounds):
        yield from chance.sample(choices, len(choices))


def to_other(figures: Sequence[float], others: Sequence[float]) -> dict[str, float | int]:
    """The spread of the ratios within the rounds."""
    return spread([figure / other for figure, other in zip(figures, others, strict=True)])


class Point(NamedTuple):
    """What was seen of a growing log: when, and how far."""

    at: float
    offset: int


def steady_rate(seen: Sequence[Point], records_for_each: float = 1.0) -> float | None:
    """Source records in a second from the first output to the last; None if all of it came at once."""
    if len(seen) < 2:  # noqa: PLR2004  a rate needs two points
        return None
    first, last = seen[0], seen[-1]
    return (last.offset - first.offset) * records_for_each / (last.at - first.at)


class Fit(NamedTuple):
    """Factors of a fit, one for each column, and how far it is off."""

    factors: tuple[float, ...]
    residuals: tuple[float, ...]
    r_squared: float

    @property
    def worst(self) -> float:
        """The largest residual, whatever its sign."""
        return max(map(abs, self.residuals))


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> Fit:
    """Factors that make each row's sum of products come nearest to its value, by least squares; a 1 is a constant.

    Residuals are weighed by the value itself: a batch of 10 s that is 1 s off counts as much as one of 1 s that is
    0.1 s off, or the largest batches alone would decide over the constant. They are told unweighed.
    """
    matrix, wanted = np.asarray(rows, float), np.asarray(values, float)
    factors, *_ = np.linalg.lstsq(matrix / wanted[:, None], np.ones(len(wanted)), rcond=None)
    residuals = wanted - matrix @ factors
    around = float(((wanted - wanted.mean()) ** 2).sum())
    r_squared = 1.0 - float((residuals**2).sum()) / around if around else 1.0
    return Fit(tuple(factors.tolist()), tuple(residuals.tolist()), r_squared)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """By how much a value rises in a second, by least squares."""
    times, values = np.asarray(points, float).T
    return float(np.polyfit(times - times[0], values, 1)[0])
