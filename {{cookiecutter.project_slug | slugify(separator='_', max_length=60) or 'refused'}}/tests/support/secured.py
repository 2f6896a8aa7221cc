"""A broker behind locks: SCRAM, mutual TLS and bearer tokens, and an authorizer that denies what is not allowed.

Beside its locked listeners it has the plain one of all test brokers, whose users may do everything: tests prepare and
look by that one, so that only the product goes through the locks.
"""

from __future__ import annotations

import re
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.certificates import Authority
from tests.support.kafka import DEADLINE_SECONDS, QUIET, wait_until
from tests.support.tokens import Tokens

from pipeline.local.broker import Broker
from pipeline.local.node import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCRAM, MTLS, OAUTH = "SCRAM", "MTLS", "OAUTH"
EXPIRED = "EXPIRED"  # as SCRAM, with a certificate that has expired
LISTENERS = {SCRAM: "SASL_SSL", MTLS: "SSL", OAUTH: "SASL_SSL", EXPIRED: "SASL_SSL"}
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
BEARER = "org.apache.kafka.common.security.oauthbearer."
NAME = "localhost"  # by which its certificate knows it; not by its address


class SecuredBroker(Broker):
    """An embedded broker of one node, with locks."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        """Make its certificates."""
        self.authority = Authority(folder)
        self._server = self.authority.sign("server", f"DNS:{NAME}")
        self._expired = self.authority.sign("expired", f"DNS:{NAME}", days=0)
        self.tokens = Tokens(folder)
        pairs = free_ports(len(LISTENERS))
        self.locked = {name: f"{NAME}:{ports.client}" for name, ports in zip(LISTENERS, pairs, strict=True)}
        super().__init__(properties=properties)

    def _settings(self) -> dict[str, str]:
        [ports] = self._ports
        locked = "".join(f",{name}://{address}" for name, address in self.locked.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in LISTENERS.items())
        return {
            **super()._settings(),
            "listeners": f"CLIENT://{HOST}:{ports.client},CONTROLLER://{HOST}:{ports.controller}{locked}",
            "advertised.listeners": f"CLIENT://{HOST}:{ports.client}{locked}",
            "listener.security.protocol.map": f"CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server.together()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
            "listener.name.expired.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.expired.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
            "listener.name.expired.ssl.keystore.location": str(self._expired.together()),
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{BEARER}OAuthBearerLoginModule required;",
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
                f"{BEARER}OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.tokens.keys.as_uri(),
            "listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def start(self) -> None:
        """Start it, with leave to read the key of the tokens."""
        uri, path = self.tokens.keys.as_uri(), self.tokens.keys
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={uri}"
        allowed += f" -Dorg.apache.kafka.sasl.oauthbearer.allowed.files={path}"
        with patch.dict("os.environ", {"JAVA_TOOL_OPTIONS": allowed}):
            super().start()

    @cached_property
    def admin(self) -> AdminClient:
        """One who may do everything."""
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def add_user(self, name: str, password: str) -> None:
        """Let somebody in by SCRAM; he may do nothing yet."""
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, kind, password.encode())
        self.admin.alter_user_scram_credentials([change])[name].result(DEADLINE_SECONDS)
        wait_until(lambda: self._knows(name), what=f"the broker knows {name}")

    def _knows(self, name: str) -> bool:
        try:
            self.admin.describe_user_scram_credentials([name])[name].result(DEADLINE_SECONDS)
        except KafkaException:
            return False
        return True

    def allow(self, commands: Iterable[str]) -> list[AclBinding]:
        """Do what lines of `kafka-acls` say, and wait until the broker knows."""
        bindings = [binding(line) for line in commands]
        for answer in self.admin.create_acls(bindings).values():
            answer.result(DEADLINE_SECONDS)
        wait_until(lambda: set(bindings) <= set(self.allowed()), what="the broker knows its ACLs")
        return bindings

    def deny(self, bindings: Iterable[AclBinding]) -> None:
        """Take ACLs away, and wait until the broker has forgotten them."""
        gone = list(bindings)
        for answer in self.admin.delete_acls([_filter(one) for one in gone]).values():
            answer.result(DEADLINE_SECONDS)
        wait_until(lambda: not set(gone) & set(self.allowed()), what="the broker has forgotten the ACLs")

    def allowed(self) -> list[AclBinding]:
        """Return all ACLs."""
        anything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        found: list[AclBinding] = self.admin.describe_acls(anything).result(DEADLINE_SECONDS)
        return found


def _filter(one: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation, one.permission_type
    )


RESOURCES = {"--topic": ResourceType.TOPIC, "--group": ResourceType.GROUP}
RESOURCES |= {"--transactional-id": ResourceType.TRANSACTIONAL_ID}
# What Kafka's own command takes for each; it refuses all else ("AclEntry.supportedOperations").
SUPPORTED = {
    ResourceType.TOPIC: "Read Write Create Describe Delete Alter DescribeConfigs AlterConfigs",
    ResourceType.GROUP: "Read Describe Delete DescribeConfigs AlterConfigs",
    ResourceType.TRANSACTIONAL_ID: "Describe Write",
    ResourceType.BROKER: "Create ClusterAction DescribeConfigs AlterConfigs IdempotentWrite Alter Describe",
}
PRINCIPAL = re.compile(r"User:.+")
OPERATIONS = {one.name.replace("_", "").lower(): one for one in AclOperation}


def binding(command: str) -> AclBinding:
    """Read one command as `kafka-acls` would; what it would not understand is an error here.

    The command itself is not among the broker's jars (it is in Kafka's `tools`), so its rules are repeated.
    """
    program, *words = shlex.split(command)
    assert program == "kafka-acls", command
    options: dict[str, Any] = {}
    flags = {"--add", "--cluster"}
    while words:
        word = words.pop(0)
        options[word] = True if word in flags else words.pop(0)
    assert options.pop("--add") is True
    assert ":" in options.pop("--bootstrap-server")
    options.pop("--command-config", None)
    pattern = ResourcePatternType[options.pop("--resource-pattern-type", "literal").upper()]
    principal, asked = options.pop("--allow-principal"), options.pop("--operation")
    assert PRINCIPAL.fullmatch(principal), command
    operation = OPERATIONS[asked.lower()]
    if options.pop("--cluster", False):
        kind, name = ResourceType.BROKER, "kafka-cluster"
    else:
        [(word, name)] = options.items()
        kind = RESOURCES[word]
        options = {}
    assert not options, options
    assert asked in SUPPORTED[kind].split(), command
    return AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
