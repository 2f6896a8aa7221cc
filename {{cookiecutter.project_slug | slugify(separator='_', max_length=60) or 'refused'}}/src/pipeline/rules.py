"""The rules of single settings, each in words with an example.

Guarantee: a value that is refused is told its rule, not a regular expression, and a password is never repeated.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from pipeline.refused import reason_against

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic_core import ErrorDetails

TOPIC_CHARACTERS = 249  # Kafka's limit: a topic's name is also the name of a folder
# As Hadoop tells a URI from a path: hdfs://name/x and file:/x are the former.
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
HOST = r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%]{2,60}\])"
WEB = rf"https?://{HOST}(?::[0-9]{{1,5}})?(?:/[^\s@,?#]*)?"
ADDRESS = re.compile(rf"{HOST}:(?P<port>[0-9]{{1,5}})")
PORTS = range(1, 65_536)

Start = str | int | dict[int, int]


def _matching(pattern: str, rule: str) -> AfterValidator:
    compiled = re.compile(pattern)
    return _ruled(lambda value: bool(compiled.fullmatch(value)), rule)


def _ruled(holds: Callable[[Any], bool], rule: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if not holds(value):
            # The braces of an example must not be taken for a placeholder.
            raise PydanticCustomError("rule", "{rule}", {"rule": rule})  # noqa: EM101  pydantic's template
        return value

    return AfterValidator(check)


def own_or_from(least: int) -> AfterValidator:
    """A number that both clients take, or 0."""
    rule = f"must be 0, which leaves the client's own, or at least {least}"
    return _ruled(lambda value: value == 0 or value >= least, rule)


def _is_bootstrap(value: str) -> bool:
    found = [ADDRESS.fullmatch(address) for address in value.split(",")]
    return all(match is not None and int(match["port"]) in PORTS for match in found)


def parse_start(text: str) -> Start:
    """Read `source.start`: "earliest", "latest", milliseconds since 1970, or offsets by partition."""
    kind, _, value = text.partition(":")
    if kind == "time":
        moment = datetime.fromisoformat(value)
        # Kafka takes times below 0 for names of offsets: -1 is the end of the log.
        if moment.tzinfo is not None and moment.timestamp() >= 0:
            return int(moment.timestamp() * 1000)
    elif kind == "offsets":
        given = json.loads(value)
        if given and all(partition.isdecimal() and _is_offset(offset) for partition, offset in given.items()):
            return {int(partition): offset for partition, offset in given.items()}
    elif text in {"earliest", "latest"}:
        return text
    raise ValueError(text)


def _is_offset(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_start(value: str) -> bool:
    try:
        parse_start(value)
    except (ValueError, AttributeError, OverflowError):
        return False
    return True


def _located(value: str) -> str:
    """A path for all processes alike: Spark's workers have another working folder than who reads the settings."""
    return str(Path(value).absolute()) if value else ""


TopicName = Annotated[
    str,
    _matching(
        rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARACTERS}}}",
        f"must be 1 to {TOPIC_CHARACTERS} letters, digits, dots, underscores or hyphens, for example payments.v1",
    ),
]
# Empty: none.
OtherTopicName = Annotated[
    str,
    _matching(
        rf"[A-Za-z0-9._-]{{0,{TOPIC_CHARACTERS}}}",
        f"must be empty, or at most {TOPIC_CHARACTERS} letters, digits, dots, underscores or hyphens",
    ),
]
AppId = Annotated[
    str,
    _matching(
        r"[a-z0-9][a-z0-9_-]{0,79}",
        "must be 1 to 80 small letters, digits, underscores or hyphens, for example card-payments",
    ),
]
BOOTSTRAP_RULE = (
    "must be host:port, several parted by commas without spaces, for example broker-1:9092,broker-2:9092; "
    "no scheme, no user, no password"
)
Bootstrap = Annotated[str, _ruled(_is_bootstrap, BOOTSTRAP_RULE)]
# Empty: the same cluster as the source.
OtherBootstrap = Annotated[str, _ruled(lambda value: not value or _is_bootstrap(value), BOOTSTRAP_RULE)]
StartText = Annotated[
    str,
    _ruled(
        _is_start,
        "must be earliest, latest, a time with its zone (time:2026-01-31T08:00:00+00:00), "
        'or the offset of every partition (offsets:{"0": 42, "1": 17})',
    ),
]
HeaderName = Annotated[
    str,
    _ruled(lambda value: 1 <= len(value.encode()) <= 200, "must be 1 to 200 bytes, for example producer-id"),  # noqa: PLR2004
]
HostName = Annotated[
    str, _matching(rf"{HOST}|[0-9A-Fa-f:.]+", "must be an address or a host name, for example 127.0.0.1 or 0.0.0.0")
]
# A local master repeats a failed task only if it is told how often one may fail.
Master = Annotated[
    str,
    _matching(
        r"local\[(\*|[1-9][0-9]*),[1-9][0-9]*\]|local-cluster\[[1-9][0-9]*( *, *[1-9][0-9]*){2}\]|spark://\S+|yarn|k8s://\S+",
        "must be local[tasks,tries], for example local[4,4], or spark://host:7077, yarn, k8s://https://host:443",
    ),
]
VariableName = Annotated[
    str,
    _matching(r"([A-Za-z_][A-Za-z0-9_]*)?", "must be the name of an environment variable, for example KAFKA_PASSWORD"),
]
# Read by this program alone.
OwnFile = Annotated[str, AfterValidator(_located)]
# Java's clients find a file by a placeholder, ${dir:folder:name}, in which these signs have a meaning, also where they
# stand in the folder that a relative path begins in.
SecretFile = Annotated[
    str,
    AfterValidator(_located),
    _matching(
        r"[^:{}$,\"\\\x00-\x1f]*",
        'must be the path of a file, without : { } $ , " or \\ in it or in the working folder, '
        "for example secrets/password",
    ),
]
# They stand between quotes in Java's login configuration.
LoginName = Annotated[
    str,
    _matching(
        r"[^\"\\${}\x00-\x1f\x7f]{0,200}", "must be up to 200 signs without quotes, backslash, $, braces or line ends"
    ),
]
TokenUrl = Annotated[
    str,
    _matching(
        r"(https://[^\s@\"\\${}]+|http://(localhost|127\.0\.0\.1)(:[0-9]+)?(/[^\s@\"\\${}]*)?)?",
        "must be https://host/path without user or password (http:// only to localhost), "
        "for example https://login.example.org/oauth2/token",
    ),
]
RegistryUrl = Annotated[
    str,
    _matching(
        rf"({WEB}(,{WEB})*)?",
        "must be http:// or https:// with host and port, several parted by commas without spaces, for example "
        "https://registry:8081; no user, no password: those are kept where codec.registry_user_info_file says",
    ),
]
Memory = Annotated[str, _matching(r"[1-9][0-9]*[kmgtKMGT]", "must be a number with a unit, for example 512m or 2g")]


# pydantic's kinds of errors, in words; the bounds are the settings' own.
WORDS = {
    "missing": "missing; it has no default",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "int_parsing_size": "must be a whole number of usual size",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text, in quotes",
    "tuple_type": 'must be a list, for example ["a", "b"]',
    "too_short": "must name at least one",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}


def told(error: ErrorDetails, key: str, known: Iterable[str]) -> str:
    """One of pydantic's errors in our words; `known` are the names that could stand in place of an unknown one.

    The value of an unknown key is not repeated, nor that of a whole section: it may be another program's secret.
    """
    kind = error["type"]
    if kind == "extra_forbidden":
        names = list(known)
        if reason := reason_against(key.partition(".")[2] or key):
            return f"{key}: refused: {reason}"
        near = get_close_matches(key.rpartition(".")[2], names, n=1)
        return f"{key}: unknown; {f'did you mean {near[0]}?' if near else 'known are ' + ', '.join(names)}"
    if kind == "model_type":
        return f"{key}: must be a section with keys of its own: [{key}]"
    rule = WORDS[kind].format(**error.get("ctx", {})) if kind in WORDS else error["msg"]
    return f"{key}: {rule}" if kind == "missing" else f"{key} = {shown(error['input'])}: {rule}"


def shown(value: Any) -> str:
    """Return a value as an error may show it: what stands before an @ may be a password."""
    text = value if isinstance(value, str) else repr(value)
    masked = re.sub(r".*@", "***@", text, flags=re.DOTALL)
    return repr(masked) if isinstance(value, str) else masked
