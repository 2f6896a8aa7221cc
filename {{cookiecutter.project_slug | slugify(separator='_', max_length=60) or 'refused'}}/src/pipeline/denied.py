"""What a cluster refuses: the way in, or an operation on a topic, a group, a transactional id.

Guarantee: a refusal ends the job at once and is not taken for a cluster that is away: the line names the user and what
was refused, and for an operation the very ACL that is missing.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pipeline.address import made
from pipeline.errors import Denied

if TYPE_CHECKING:
    from collections.abc import Mapping

# Long enough for a login; a cluster that has just failed to answer is not waited for again.
PROBE_SECONDS = 5.0
LOOK_SECONDS = 0.5
RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalId",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Cluster",
}
REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001  librdkafka's local codes
# A broker's word on a client's certificate (bad, revoked, expired, unknown, of an unknown authority, missing). With TLS
# 1.3 it comes behind the handshake, and librdkafka takes it for a connection that broke.
ALERT = re.compile(r"SSL alert number (?:4[2-9]|116)\b")
ACLS = "`pipeline provision --acls` prints all that is needed"
# What librdkafka adds for its own developers.
DURATION = re.compile(r" \(after \d+ms in state \w+.*?\)")


def denial(error: KafkaError, action: str, *needs: str) -> Denied | None:
    """The refusal, if the cluster denies one of what the action needs ("Write on Topic receipts")."""
    resource = RESOURCES.get(error.code())
    for need in needs:
        if resource is not None and need.partition(" on ")[2].startswith(resource):
            return Denied(f"{action}: denied: {need} is not allowed to this user ({error.name()}); {ACLS}")
    return None


def refusal(config: Mapping[str, Any]) -> str:
    """Why a cluster does not let this client in; empty if it does, or is away.

    A failed request only says that it failed. The reason comes by a callback, and only while a client is being served.
    """
    said: list[KafkaError] = []
    client = made(AdminClient, {**config, "error_cb": said.append})
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline:
        try:
            client.list_topics(timeout=LOOK_SECONDS)
        except KafkaException:
            client.poll(0)
        else:
            return ""
        for error in said:
            if error.code() in REFUSALS or ALERT.search(error.str()):
                return DURATION.sub("", error.str())
    return ""
