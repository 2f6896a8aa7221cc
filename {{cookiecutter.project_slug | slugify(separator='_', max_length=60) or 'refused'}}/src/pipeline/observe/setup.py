"""All that watches a run, put together and taken apart again.

Guarantee: what can be wrong with it is told before Spark is started; what it still has to say at the end is said.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from pipeline.observe.lag import GroupProgress, Poller
from pipeline.observe.metrics import Metrics
from pipeline.observe.progress import Observer
from pipeline.observe.server import Endpoint, trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.observe.progress import Watcher
    from pipeline.settings import Settings


@contextmanager
def observing(settings: Settings) -> Iterator[Observer]:
    """An observer whose figures can be scraped, unless `metrics.port` is 0, and whose progress other tools see."""
    with ExitStack() as exits:
        group = GroupProgress(settings)
        exits.callback(group.close)
        watchers: list[Watcher] = [group]
        if settings.metrics.port:
            registry = CollectorRegistry()
            metrics = Metrics.build(settings, registry)
            poller = Poller(settings, metrics)
            not_ready = partial(trouble, settings, metrics, poller)
            endpoint = Endpoint(settings.metrics.address, settings.metrics.port, registry, not_ready)
            exits.callback(endpoint.close)
            exits.callback(poller.close)
            endpoint.start()
            watchers = [metrics, group, poller]
        yield Observer(watchers, dedup=settings.upstream_dedup)
