"""Checks of the reference topic, where there is one: it keeps every key, and each value until a restart is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.observe.doctor.finding import Finding, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.observe.doctor.site import Site

# A batch that a crash cut off is finished with the values of then: they must outlive the time until somebody restarts.
LONG_ENOUGH_MS = 86_400_000


def reference_topic(site: Site) -> Iterator[Finding]:
    """It exists, is compacted only, and does not compact what a restart may need."""
    name = site.settings.reference.topic
    if not name:
        return
    topics = site.source.topics
    found = topics.describe([name]).get(name)
    if found is None:
        yield fail("reference topic", f"{name} does not exist", "create it, or leave reference.topic empty")
        return
    config = topics.config(name)
    policy, lag = config["cleanup.policy"], int(config["min.compaction.lag.ms"])
    if policy != "compact":
        detail = f"{name}: cleanup.policy={policy}: keys that are not written again will be forgotten"
        yield warn("reference topic", detail, "set cleanup.policy=compact")
    elif lag < LONG_ENOUGH_MS:
        detail = f"{name}: min.compaction.lag.ms={lag}: a batch that is cut off and restarted later may not be finished"
        yield warn("reference topic", detail, f"set min.compaction.lag.ms={LONG_ENOUGH_MS}, a day, or more")
    else:
        yield ok("reference topic", f"{name}, {found.partitions} partitions, not compacted before {lag // 1000} s")
