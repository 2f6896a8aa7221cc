"""What the cluster must allow: the fewest ACLs with which each command works, to be printed and to be checked.

Guarantee: one list serves both. What `pipeline provision --acls` prints is what a start asks the cluster for, and a
start that lacks one of them ends before anything is written, with a line that names operation and resource.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from pipeline.address import access_of, made
from pipeline.denied import ACLS, RESOURCES
from pipeline.errors import BadSettings, Denied, PipelineError
from pipeline.kafka import REQUEST_SECONDS, admin_config, check_entry, reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from pipeline.settings import Settings

OPTIONS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}
# Either of them lets a topic be described; DescribeConfigs does not.
SEES = frozenset({"Read", "Write", "Describe"})


class Acl(NamedTuple):
    """One operation on one resource of a cluster."""

    cluster: str
    operation: str
    resource: str
    name: str
    prefixed: bool = False

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.prefixed else ''}"


def _written(settings: Settings) -> list[str]:
    """The topics that transactions write to, on either path; jobs with reference data also write their plans."""
    plans = [settings.plan_topic] if settings.reference.topic else []
    return [*settings.output.topics, settings.output.dead_letter_topic, settings.lane_topic, *plans]


def of_run(settings: Settings) -> list[Acl]:
    """What `pipeline run` needs. One prefix holds the transactional ids of lanes, of whole batches and of plans."""
    source, output = settings.source.bootstrap, settings.output_bootstrap
    written = _written(settings)
    needed = [
        Acl(source, "Read", "Topic", settings.source.topic),
        Acl(source, "Read", "Group", settings.group),
        *(Acl(output, "Write", "Topic", name) for name in written),
        *(Acl(output, "DescribeConfigs", "Topic", name) for name in written),
        Acl(output, "Read", "Topic", settings.lane_topic),
        Acl(output, "Write", "TransactionalId", settings.transactional_ids, prefixed=True),
    ]
    if settings.reference.topic:
        needed += [
            Acl(source, "Read", "Topic", settings.reference.topic),
            Acl(output, "Read", "Topic", settings.plan_topic),
        ]
    if output != source:
        needed.append(Acl(output, "Describe", "Group", settings.group))  # readers name it, and commit nothing
    if settings.source.new_partitions == "provision":
        needed += of_provision(settings)
    return needed


def of_provision(settings: Settings) -> list[Acl]:
    """What `pipeline provision` needs on top: to create what is missing, and to let the lane topic grow."""
    output = settings.output_bootstrap
    return [
        Acl(settings.source.bootstrap, "DescribeConfigs", "Topic", settings.source.topic),
        *(Acl(output, "Create", "Topic", name) for name in _written(settings)),
        Acl(output, "Alter", "Topic", settings.lane_topic),
    ]


def of_audit(settings: Settings) -> list[Acl]:
    """What `pipeline audit` needs on top: to read what was written."""
    names = [*settings.output.topics, settings.output.dead_letter_topic]
    return [Acl(settings.output_bootstrap, "Read", "Topic", name) for name in names]


def of_letters(settings: Settings) -> list[Acl]:
    """What it takes to read dead letters."""
    return [Acl(settings.output_bootstrap, "Read", "Topic", settings.output.dead_letter_topic)]


def of_replay(settings: Settings) -> list[Acl]:
    """What `pipeline dead-letters` needs on top: to read them, and to send them back in a transaction."""
    source, topic = settings.source.bootstrap, settings.source.topic
    return [
        *of_letters(settings),
        Acl(source, "Write", "Topic", topic),
        Acl(source, "Write", "TransactionalId", f"{settings.transactional_ids}replay"),
    ]


def commands(needed: Iterable[Acl], principal: str = "", command_config: str = "") -> Iterator[str]:
    """A line of `kafka-acls` for each, ready for a shell."""
    for acl in needed:
        if not principal and access_of(acl.cluster).method == "mtls":
            msg = "say --principal: the subject of the certificate as the brokers map it, for example User:CN=shop"
            raise BadSettings(msg)
        words = ["kafka-acls", "--bootstrap-server", str(acl.cluster)]
        words += ["--command-config", command_config] if command_config else []
        words += ["--add", "--allow-principal", principal or access_of(acl.cluster).principal]
        words += ["--operation", acl.operation, OPTIONS[acl.resource], acl.name]
        words += ["--resource-pattern-type", "prefixed"] if acl.prefixed else []
        yield shlex.join(words)


def printed(settings: Settings, principal: str = "", command_config: str = "") -> Iterator[str]:
    """All of it as a script, command by command; each part is whole on top of the first, without the others."""
    run = of_run(settings)
    parts = {
        "What `pipeline run` needs.": run,
        "What `pipeline provision` needs on top; for the one who runs it.": of_provision(settings),
        "What `pipeline audit` needs on top; for the one who runs it.": of_audit(settings),
        "What `pipeline dead-letters` needs on top; for the one who runs it.": of_replay(settings),
    }
    for title, needed in parts.items():
        lines = [acl for acl in needed if needed is run or not any(_holds(one, acl) for one in run)]
        yield f"# {title}"
        yield from commands(dict.fromkeys(lines), principal, command_config)


def _holds(given: Acl, acl: Acl) -> bool:
    """Whether one ACL allows all that another does."""
    return given == acl or (given.prefixed and given[:3] == acl[:3] and acl.name.startswith(given.name))


def check(settings: Settings, needed: Callable[[Settings], list[Acl]] = of_run) -> None:
    """Ask the clusters what this user may do; transactional ids can only be tried, which the first fence does."""
    wanted = needed(settings)
    for cluster in dict.fromkeys(acl.cluster for acl in wanted):
        if not access_of(cluster).locked:
            continue
        check_entry(cluster, "enter")  # at once: a request that is not let in would only end at its deadline
        missing = list(_missing(cluster, [acl for acl in wanted if acl.cluster == cluster]))
        if missing:
            user = access_of(cluster).principal
            msg = f"cluster {cluster} denies {user}: {', '.join(map(str, dict.fromkeys(missing)))}; {ACLS}"
            raise Denied(msg)


def clearest(error: Denied, settings: Settings) -> PipelineError:
    """The refusal with all that is missing, if the cluster can still be asked; a request tells of its own need only."""
    try:
        check(settings)
    except PipelineError as clearer:
        return clearer if isinstance(clearer, Denied) else error
    return error


def _missing(cluster: str, wanted: list[Acl]) -> Iterator[Acl]:
    admin = made(AdminClient, admin_config(cluster))
    options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": REQUEST_SECONDS}
    topics = TopicCollection(list(dict.fromkeys(acl.name for acl in wanted if acl.resource == "Topic")))
    with reachable(cluster, "ask what is allowed"):
        for name, answer in admin.describe_topics(topics, **options).items():
            yield from _lacking([acl for acl in wanted if acl[2:4] == ("Topic", name)], _allowed(answer))
        for group in (acl for acl in wanted if acl.resource == "Group"):
            answer = admin.describe_consumer_groups([group.name], **options)[group.name]
            yield from _lacking([group], _allowed(answer))


def _allowed(answer: Future[Any]) -> set[str] | None:
    """The operations that are allowed; none of them on what this user may not even see; None if nobody knows."""
    try:
        operations = answer.result(REQUEST_SECONDS).authorized_operations
    except KafkaException as error:
        if error.args[0].code() in RESOURCES:
            return set()
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None  # whether it must exist is for others to say
        raise
    return None if operations is None else {operation.name.replace("_", "") for operation in operations}


def _lacking(wanted: list[Acl], allowed: set[str] | None) -> list[Acl]:
    if allowed is None:
        return []
    if not allowed:  # the others cannot be told before these are granted
        return [acl for acl in wanted if acl.operation in SEES]
    return [acl for acl in wanted if acl.operation.upper() not in allowed]
