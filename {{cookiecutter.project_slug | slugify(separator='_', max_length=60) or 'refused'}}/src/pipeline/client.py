"""Options of the Kafka clients that may be turned, for Spark's Java client and for librdkafka alike.

Guarantee: these and no others. Each has its range, which both clients take, and none touches what the guarantee rests
on.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.rules import LoginName, own_or_from
from pipeline.section import Section

# Each option by its two names: librdkafka's and Java's.
NAMES = {
    "rack": ("client.rack", "client.rack"),
    "dns_lookup": ("client.dns.lookup", "client.dns.lookup"),
    "connect_timeout_ms": ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.ms"),
    "request_timeout_ms": ("socket.timeout.ms", "request.timeout.ms"),
    "reconnect_backoff_max_ms": ("reconnect.backoff.max.ms", "reconnect.backoff.max.ms"),
    "metadata_max_age_ms": ("metadata.max.age.ms", "metadata.max.age.ms"),
}


class Client(Section):
    """How clients connect; a number of 0 and an empty text leave the client's own default."""

    rack: LoginName = ""
    dns_lookup: Literal["", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"] = ""
    connect_timeout_ms: Annotated[int, own_or_from(1_000)] = Field(default=0, ge=0, le=120_000)
    # Less than a second would cut off fetches: a broker that has nothing new answers after half a second.
    request_timeout_ms: Annotated[int, own_or_from(1_000)] = Field(default=0, ge=0, le=300_000)
    # The first pause of either client is not longer than the least.
    reconnect_backoff_max_ms: Annotated[int, own_or_from(100)] = Field(default=0, ge=0, le=600_000)
    metadata_max_age_ms: int = Field(default=0, ge=0, le=3_600_000)

    def librdkafka(self) -> dict[str, Any]:
        """For clients of confluent-kafka."""
        return {NAMES[key][0]: value for key, value in self if value}

    def java(self) -> dict[str, str]:
        """For Java clients."""
        return {NAMES[key][1]: str(value) for key, value in self if value}
