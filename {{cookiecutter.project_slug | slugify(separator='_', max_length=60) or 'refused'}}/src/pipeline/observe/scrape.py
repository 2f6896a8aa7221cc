"""What a running job exposes, read over HTTP as Prometheus reads it.

Guarantee: nothing but the job's own endpoint is asked, and no proxy stands in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCRAPE_SECONDS = 5.0

# Upper bound of a bucket, and the count of all that is not above it.
Buckets = dict[float, float]


@dataclass(frozen=True)
class Scrape:
    """All samples of one moment, by name and labels; `ready` is what `/readyz` said."""

    at: float
    samples: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]
    ready: str

    def labelled(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name."""
        for labels, value in self.samples.get(name, {}).items():
            yield dict(labels), value

    def lanes(self, name: str) -> dict[int, float]:
        """Sum of the samples of each lane."""
        found: dict[int, float] = {}
        for labels, value in self.labelled(name):
            partition = int(labels["partition"])
            found[partition] = found.get(partition, 0.0) + value
        return found

    def total(self, name: str, **wanted: str) -> float:
        """Sum of the samples that have these labels."""
        return sum(value for labels, value in self.labelled(name) if wanted.items() <= labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums by the values of one label."""
        found: dict[str, float] = {}
        for labels, value in self.labelled(name):
            found[labels[label]] = found.get(labels[label], 0.0) + value
        return found

    def buckets(self, name: str, **wanted: str) -> Buckets:
        """The cumulative buckets of a histogram, by their upper bounds."""
        found: Buckets = {}
        for labels, value in self.labelled(f"{name}_bucket"):
            if wanted.items() <= labels.items():
                bound = float(labels["le"])
                found[bound] = found.get(bound, 0.0) + value
        return found


def scrape(endpoint: str) -> Scrape:
    """Ask the job once; `endpoint` is http://host:port."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    endpoint = endpoint.rstrip("/")
    text = _get(endpoint, "/metrics")
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    except ValueError as error:
        msg = f"{endpoint}/metrics does not speak Prometheus ({error}); is it the job's endpoint?"
        raise PipelineError(msg) from error
    return Scrape(time.time(), samples, _get(endpoint, "/readyz").strip())


def _get(endpoint: str, path: str) -> str:
    if not endpoint.startswith(("http://", "https://")):
        msg = f"{endpoint}: must begin with http://, for example http://127.0.0.1:9108"
        raise PipelineError(msg)
    try:
        with build_opener(ProxyHandler({})).open(f"{endpoint}{path}", timeout=SCRAPE_SECONDS) as answer:
            body: bytes = answer.read()
    except HTTPError as error:
        body = error.read()  # /readyz says why with a status of its own
    except (HTTPException, URLError, OSError) as error:  # also a job that is killed while it answers
        reason = getattr(error, "reason", error)
        msg = f"no answer from {endpoint} ({reason}); does the job run, and with this metrics.port?"
        raise PipelineError(msg) from None
    return body.decode(errors="replace")


def quantile(share: float, buckets: Buckets) -> float | None:
    """Where this share of the observations ends, as Prometheus works it out: linear within a bucket."""
    count = buckets.get(float("inf"), 0.0)
    if not count:
        return None
    rank, below, lower = share * count, 0.0, 0.0
    for bound, reached in sorted(buckets.items()):
        if reached >= rank and reached > below:
            if bound == float("inf"):
                return lower  # beyond the last bucket: no more is known
            return lower + (bound - lower) * (rank - below) / (reached - below)
        below, lower = reached, bound
    return None
