"""What the clusters say about topics: partitions, ids, policies, limits and offsets.

Guarantee: a question that the cluster did not answer is an error with the cluster's name, never an empty answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from pipeline.address import made
from pipeline.errors import SafeStop
from pipeline.kafka import REQUEST_SECONDS, admin_config, code_of, reachable, while_leaders_move

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster knows it; the id changes when it is deleted and created anew."""

    name: str
    id: tuple[int, int]
    partitions: int
    replication: int


class Topics:
    """Questions to one cluster."""

    def __init__(self, bootstrap: str) -> None:
        """Connect in the background."""
        self.bootstrap = bootstrap
        self._connect()

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist."""
        asked = list(names)
        with reachable(self.bootstrap, f"describe topics {', '.join(asked)}"):
            answers = self.admin.describe_topics(TopicCollection(asked), request_timeout=REQUEST_SECONDS)
        found = {}
        for name, answer in answers.items():
            try:
                with reachable(self.bootstrap, f"describe topic {name}", f"Describe on Topic {name}"):
                    described = answer.result(REQUEST_SECONDS)
            except Exception as error:
                if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            uuid = described.topic_id
            found[name] = Topic(
                name,
                (uuid.get_most_significant_bits(), uuid.get_least_significant_bits()),
                len(described.partitions),
                min(len(partition.replicas) for partition in described.partitions),
            )
        return found

    def one(self, name: str, what: str) -> Topic:
        """A topic that must exist."""
        topic = self.describe([name]).get(name)
        if topic is None:
            msg = f"{what} {name} does not exist on {self.bootstrap}; check the name, or create it"
            raise SafeStop(msg)
        return topic

    def config(self, name: str) -> dict[str, str]:
        """The effective configuration of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        return self._config(resource, f"DescribeConfigs on Topic {name}")

    def broker_config(self) -> dict[str, str]:
        """The effective configuration of one broker of the cluster."""
        with reachable(self.bootstrap, "list brokers"):
            broker = next(iter(self.admin.list_topics(timeout=REQUEST_SECONDS).brokers))
        return self._config(ConfigResource(ResourceType.BROKER, str(broker)), "DescribeConfigs on Cluster")

    def _config(self, resource: ConfigResource, needs: str) -> dict[str, str]:
        with reachable(self.bootstrap, f"describe configuration of {resource.name}", needs):
            answer = self.admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
            return {key: entry.value for key, entry in answer.result(REQUEST_SECONDS).items()}

    def offsets(
        self, name: str, partitions: Iterable[int], spec: OffsetSpec, *, committed: bool = True
    ) -> dict[int, int]:
        """An offset per partition; of the committed part of the log unless told otherwise."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(name, partition): spec for partition in partitions}

        def ask() -> dict[int, int]:
            with reachable(self.bootstrap, f"list offsets of {name}", f"Describe on Topic {name}"):
                answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_SECONDS)
                return {part.partition: answer.result(REQUEST_SECONDS).offset for part, answer in answers.items()}

        return while_leaders_move(ask, self._connect, REQUEST_SECONDS)

    def _connect(self) -> None:
        self.admin = made(AdminClient, admin_config(self.bootstrap))
