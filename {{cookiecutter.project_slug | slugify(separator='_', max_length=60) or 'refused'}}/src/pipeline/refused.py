"""Names of client options that may never be set, each with the reason.

Guarantee: the settings are the allow-list. What the guarantee rests on and what makes a client run foreign code cannot
be set at all; whoever tries, in the file or by the environment, is told why, and the value is not repeated.
"""

from __future__ import annotations

import re

CODE = "it makes a client load and run code"
NO_SECRETS = (
    "a secret has no place here: keep it in an environment variable or a file, and name that "
    "(password_env or password_file in [security])"
)
GUARANTEE = (
    r"isolation|commit|offset_reset|transactional|idempoten|acks|partitioner|in_flight|retries|eof|group_|"
    r"fail_on_data_loss|min_partitions|speculation|delivery_timeout|message_timeout|check_crcs"
)
# The first that fits is told; a name as Kafka writes it (`sasl.jaas.config`) or as a key here (`sasl_jaas_config`).
REASONS = (
    (
        r"identification|host_?name|verif|insecure|trust_all|skip_",
        "certificates and host names are always checked; give the certificate that name, trust its issuer by ca_file",
    ),
    (r"jaas|login|callback", f"{CODE}; the methods of [security] are all there are"),
    (r"interceptor|plugin|providers?|reporter|factory|_class|serializer|engine|kinit|_cb", CODE),
    (
        r"passw|secret|credential|token$|jwt|private_key|api_key|keystore_key",
        NO_SECRETS,
    ),
    (
        GUARANTEE,
        "the guarantee rests on it",
    ),
    (r"sasl|ssl|security_protocol", "[security] sets it for all clients alike"),
    (r"debug|log_level", "it would write what must not be written"),
)


def reason_against(name: str) -> str:
    """Why a name may not be set; empty if it is only unknown."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return next((reason for pattern, reason in REASONS if re.search(pattern, plain)), "")
