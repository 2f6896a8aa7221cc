"""Where a cluster is, and how it is entered, in one value.

Guarantee: whoever connects by an address of the settings enters as they say; there is no other way to name a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException

from pipeline.client import Client
from pipeline.errors import BadSettings
from pipeline.security import Access, Security

if TYPE_CHECKING:
    from collections.abc import Callable

Made = TypeVar("Made")
SECRETS = ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret")

NO_GROUP = "unused"


class Address(str):
    """The brokers of a cluster, and how it is entered: whoever connects by it enters that way."""

    __slots__ = ("access", "client", "group")
    access: Access
    client: Client
    group: str

    def __new__(
        cls, brokers: str, access: Access | None = None, client: Client | None = None, group: str = NO_GROUP
    ) -> Self:
        """The text is that of the brokers; readers that need no group still name one, which must be allowed."""
        address = super().__new__(cls, brokers)
        address.access = access or Security()
        address.client = client or Client()
        address.group = group
        return address

    def __eq__(self, other: object) -> bool:
        """Two ways to enter one cluster are two addresses."""
        return str.__eq__(self, other) is True and access_of(self) == access_of(other)

    def __ne__(self, other: object) -> bool:
        """As `==` says."""
        return not self == other

    def __hash__(self) -> int:
        """As the text alone, so that it is found by it."""
        return str.__hash__(self)


def group_of(bootstrap: str) -> str:
    """The group in whose name a cluster is read: librdkafka looks for its coordinator, though nothing is committed."""
    return bootstrap.group if isinstance(bootstrap, Address) else NO_GROUP


def access_of(bootstrap: object) -> Access:
    """How a cluster is entered; plain text without anything else is a cluster without locks."""
    return bootstrap.access if isinstance(bootstrap, Address) else Security()


def entry(bootstrap: str) -> dict[str, Any]:
    """Options by which a client of confluent-kafka finds and enters a cluster."""
    return {"bootstrap.servers": bootstrap, **_client_of(bootstrap).librdkafka(), **access_of(bootstrap).librdkafka()}


def java_entry(bootstrap: str) -> dict[str, str]:
    """Options by which a Java client finds and enters a cluster."""
    return {"bootstrap.servers": str(bootstrap), **_client_of(bootstrap).java(), **access_of(bootstrap).java()}


def made(client: Callable[[dict[str, Any]], Made], config: dict[str, Any]) -> Made:
    """A client of confluent-kafka; what it refuses of its configuration is told as a mistake in the settings."""
    try:
        return client(config)
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() != KafkaError._INVALID_ARG:  # noqa: SLF001  librdkafka's local code
            raise
        why = " ".join(cause.str().split())
        for secret in (config.get(key) for key in SECRETS):
            why = why.replace(secret, "***") if secret else why
    access = access_of(config.get("bootstrap.servers"))
    sections = f"[client] and [{access.section}]" if access.locked else "[client]"
    msg = f"{sections}: the Kafka client refuses what stands there: {why}"
    raise BadSettings(msg)


def _client_of(bootstrap: object) -> Client:
    return bootstrap.client if isinstance(bootstrap, Address) else Client()
