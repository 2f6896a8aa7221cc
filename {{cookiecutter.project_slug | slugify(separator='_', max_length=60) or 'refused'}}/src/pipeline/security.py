"""How a cluster is entered: one block of settings for Spark's Java client and for librdkafka.

Guarantee: both clients enter alike, certificates and host names are always checked, and a secret is read by the client
that needs it, in the process that needs it. Settings, plans, checkpoints and Spark's pages hold only the name of the
variable or file it is kept in; the Java client resolves that name itself, by Kafka's own config providers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pipeline.errors import BadSettings
from pipeline.rules import LoginName, SecretFile, TokenUrl, VariableName  # noqa: TC001  pydantic evaluates them
from pipeline.section import Section

Method = Literal["plaintext", "scram", "mtls", "oauth"]
SAME = "as-source"
MECHANISMS = {"scram": "SCRAM-SHA-512", "oauth": "OAUTHBEARER"}
MODULES = {
    "scram": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "oauth": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"  # noqa: S105  a class
# Both clients know it by this name. There is no setting for it.
HOST_NAMES = {"ssl.endpoint.identification.algorithm": "https"}
PROVIDERS = "org.apache.kafka.common.config.provider."


class Secret(NamedTuple):
    """Where a secret is kept: in a variable or in a file."""

    key: str  # of the settings, in full
    variable: str
    file: str

    def read(self) -> str:
        """The secret itself; for the configuration of a client, and for nothing else."""
        if self.variable:
            return os.environ[self.variable]
        return Path(self.file).read_text(encoding="utf-8")

    def checked(self) -> str:
        """The secret, or the rule it breaks."""
        try:
            return self.read()
        except KeyError:
            msg = f"{self.key}_env = {self.variable!r}: no such environment variable; set it where the job runs"
        except OSError as error:
            msg = f"{self.key}_file = {self.file!r}: cannot be read: {error.strerror}"
        except UnicodeDecodeError:
            msg = f"{self.key}_file = {self.file!r}: is not text"
        raise BadSettings(msg) from None

    def for_java(self) -> str:
        """A placeholder that the Java client itself replaces, in its own memory."""
        return f"${{env:{self.variable}}}" if self.variable else placeholder(self.file)


class Access(Section):
    """The keys of one way to enter a cluster; which are needed follows from the method."""

    section: ClassVar[str] = "security"

    method: str
    ca_file: SecretFile = ""
    username: LoginName = ""
    password_env: VariableName = ""
    password_file: SecretFile = ""
    certificate_file: SecretFile = ""
    key_file: SecretFile = ""
    key_password_env: VariableName = ""
    key_password_file: SecretFile = ""
    token_url: TokenUrl = ""
    token_ca_file: SecretFile = ""
    client_id: LoginName = ""
    client_secret_env: VariableName = ""
    client_secret_file: SecretFile = ""
    scope: LoginName = ""

    def secret(self, name: str) -> Secret:
        """Where one of `password`, `key_password` and `client_secret` is kept."""
        file = getattr(self, f"{name}_file")
        return Secret(f"{self.section}.{name}", getattr(self, f"{name}_env"), file)

    @property
    def principal(self) -> str:
        """Who the cluster takes us for, as far as the settings tell."""
        if self.method == "mtls":
            return f"the owner of {self.certificate_file}"
        return f"User:{self.username or self.client_id or 'ANONYMOUS'}"

    @property
    def locked(self) -> bool:
        """Whether there is anything to prove at all."""
        return self.method != "plaintext"

    def librdkafka(self) -> dict[str, Any]:
        """Options for clients of confluent-kafka; they hold the secret."""
        if not self.locked:
            return {}
        options: dict[str, Any] = {
            "security.protocol": self._protocol,
            **HOST_NAMES,
            "enable.ssl.certificate.verification": True,
            **_given({"ssl.ca.location": self.ca_file}),
        }
        if self.method == "scram":
            options |= {"sasl.username": self.username, "sasl.password": self.secret("password").checked()}
        elif self.method == "oauth":
            options |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.oauthbearer.client.id": self.client_id,
                "sasl.oauthbearer.client.secret": self.secret("client_secret").checked(),
                **_given({"sasl.oauthbearer.scope": self.scope, "https.ca.location": self.token_ca_file}),
            }
        else:
            options |= {"ssl.certificate.location": self.certificate_file, "ssl.key.location": self.key_file}
            if self._has("key_password"):
                options["ssl.key.password"] = self.secret("key_password").checked()
        return {**options, **self._mechanism("sasl.mechanism")}

    def java(self) -> dict[str, str]:
        """Options for Java clients; in place of a secret they name where it is kept."""
        if not self.locked:
            return {}
        options = {
            "security.protocol": self._protocol,
            **HOST_NAMES,
            **self._mechanism("sasl.mechanism"),
            **self._providers(),
        }
        if self.ca_file:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}
        if self.method == "scram":
            options["sasl.jaas.config"] = self._login(username=self.username, password=self._java("password"))
        elif self.method == "oauth":
            options |= {
                "sasl.login.callback.handler.class": TOKEN_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.jaas.config": self._token_login(),
            }
        else:
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": placeholder(self.certificate_file),
                "ssl.keystore.key": placeholder(self.key_file),
            }
            if self._has("key_password"):
                options["ssl.key.password"] = self._java("key_password")
        return options

    @property
    def _protocol(self) -> str:
        return "SSL" if self.method == "mtls" else "SASL_SSL"

    def _mechanism(self, key: str) -> dict[str, str]:
        return {key: MECHANISMS[self.method]} if self.method in MECHANISMS else {}

    def _has(self, name: str) -> bool:
        return bool(self.secret(name).variable or self.secret(name).file)

    def _java(self, name: str) -> str:
        return self.secret(name).for_java()

    def _login(self, **options: str) -> str:
        pairs = " ".join(f'{name}="{value}"' for name, value in options.items())
        return f"{MODULES[self.method]} required {pairs};"

    def _token_login(self) -> str:
        given = {"clientId": self.client_id, "clientSecret": self._java("client_secret"), "scope": self.scope}
        if self.token_ca_file:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.token_ca_file}
        return self._login(**_given(given))

    def _providers(self) -> dict[str, str]:
        """Kafka's own, for the very variables and folders that hold what is named here, and no other."""
        names = ("password", "key_password", "client_secret")
        variables = [variable for name in names if (variable := self.secret(name).variable)]
        files = [*(self.secret(name).file for name in names), self.certificate_file, self.key_file]
        folders = sorted({str(Path(file).parent) for file in files if file})
        return {
            "config.providers": "env,dir",
            "config.providers.env.class": f"{PROVIDERS}EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "|".join(variables) or "none",
            "config.providers.dir.class": f"{PROVIDERS}DirectoryConfigProvider",
            **_given({"config.providers.dir.param.allowed.paths": ",".join(folders)}),
        }


class Security(Access):
    """How the source is entered, and the output too unless it is told apart."""

    method: Method = "plaintext"


class OutputSecurity(Access):
    """How the output is entered, if otherwise than the source."""

    section: ClassVar[str] = "output_security"

    method: Literal["as-source", "plaintext", "scram", "mtls", "oauth"] = "as-source"


def placeholder(file: str) -> str:
    """What the Java client replaces by the content of a file."""
    path = Path(file)
    return f"${{dir:{path.parent}:{path.name}}}"


def _given(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}
