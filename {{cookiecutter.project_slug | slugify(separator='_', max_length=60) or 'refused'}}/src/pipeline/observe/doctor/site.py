"""What the checks ask about: both clusters and their topics, each asked once.

Guarantee: a cluster that is away, or lets nobody in, costs one deadline, not one for each check.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pipeline.errors import Denied, PipelineError, Unreachable
from pipeline.kafka import reachable
from pipeline.lanes.topics import Topic, Topics

if TYPE_CHECKING:
    from pipeline.settings import Settings

# A cluster that answers at all answers within a second; short, because a person waits for both.
PROBE_SECONDS = 8.0


class NotThere(PipelineError):
    """What a check is about does not exist or cannot be asked; another check says so with its remedy."""


class Cluster:
    """A cluster that was asked for its brokers once."""

    def __init__(self, bootstrap: str) -> None:
        """Ask, and remember a failure."""
        self.bootstrap = bootstrap
        self.brokers = 0
        self.fault: Unreachable | Denied | None = None
        self._topics = Topics(bootstrap)
        try:
            with reachable(bootstrap, "ask for the brokers"):
                self.brokers = len(self._topics.admin.list_topics(timeout=PROBE_SECONDS).brokers)
        except (Unreachable, Denied) as error:
            self.fault = error

    @property
    def topics(self) -> Topics:
        """Questions to the cluster, if it is there."""
        if self.fault is not None:
            how = "is away" if isinstance(self.fault, Unreachable) else "does not let us in"
            msg = f"cluster {self.bootstrap} {how}"
            raise NotThere(msg)
        return self._topics


class Site:
    """The surroundings of one app."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is asked before a check needs it."""
        self.settings = settings

    @cached_property
    def source(self) -> Cluster:
        """The cluster that is read."""
        return Cluster(self.settings.source.bootstrap)

    @cached_property
    def output(self) -> Cluster:
        """The cluster that is written; often the same."""
        same = self.settings.output_bootstrap == self.settings.source.bootstrap
        return self.source if same else Cluster(self.settings.output_bootstrap)

    @cached_property
    def _source_topic(self) -> Topic | None:
        name = self.settings.source.topic
        return self.source.topics.describe([name]).get(name)

    @property
    def source_topic(self) -> Topic:
        """The topic that is read."""
        if self._source_topic is None:
            msg = f"source topic {self.settings.source.topic} does not exist"
            raise NotThere(msg)
        return self._source_topic

    @property
    def written_names(self) -> list[str]:
        """All topics that the app writes."""
        output = self.settings.output
        return [*output.topics, output.dead_letter_topic, self.settings.lane_topic]

    @cached_property
    def written(self) -> dict[str, Topic]:
        """Those of them that exist."""
        return self.output.topics.describe(self.written_names)

    @property
    def lane_topic(self) -> Topic:
        """The topic of the lane records."""
        if self.settings.lane_topic not in self.written:
            msg = f"lane topic {self.settings.lane_topic} does not exist"
            raise NotThere(msg)
        return self.written[self.settings.lane_topic]

    @cached_property
    def configs(self) -> dict[str, dict[str, str]]:
        """The configuration of every topic that the app writes."""
        return {name: self.output.topics.config(name) for name in self.written}

    @cached_property
    def source_config(self) -> dict[str, str]:
        """The configuration of the topic that is read."""
        return self.source.topics.config(self.source_topic.name)

    @cached_property
    def broker_config(self) -> dict[str, str]:
        """The configuration of one broker of the cluster that is written."""
        return self.output.topics.broker_config()
