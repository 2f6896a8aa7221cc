"""The few errors this program raises, each with its exit code and what to do about it.

A user's mistake, a stop that protects the data, and a defect must be told apart by a person
and by a supervisor: so every class has its own exit code, and every message says what happened,
to which topic and partition, and what to do.
"""

from __future__ import annotations


def provision_if_new(what: str) -> str:
    """The remedy where the record of a lane, or of all lanes, is not there; and what it does where it was lost."""
    return (
        f"run `pipeline provision` only if this {what} is new; if it has run before, its history is lost, and to "
        f"provision it under this app.id would repeat its output: do what docs/operations.md says under "
        f'"Disaster recovery"'
    )


class PipelineError(Exception):
    """Something went wrong that a person can act on; printed as one line, without a traceback."""

    exit_code = 1


class BadSettings(PipelineError):
    """A setting is unknown, malformed, or contradicts another one. Nothing was started."""

    exit_code = 2


class SafeStop(PipelineError):
    """Going on could lose or double a record, so the job stopped; committed output is untouched."""

    exit_code = 3


class Replaced(PipelineError):
    """A newer run of the same app took over the lanes; this one must not be restarted."""

    exit_code = 4


class NotExact(PipelineError):
    """The audit found output that differs from what the source topic demands."""

    exit_code = 5


class Unreachable(PipelineError):
    """A Kafka cluster did not answer within its deadline; safe to try again."""

    exit_code = 6


class RegistryAway(PipelineError):
    """The schema registry did not answer within its time, so that records could not be judged; safe to try again."""

    exit_code = 7


class Denied(PipelineError):
    """The cluster does not let this user in, or denies an operation; an administrator must act, then start again."""

    exit_code = 8


class Stopped(PipelineError):
    """The job was told to stop, and did; nothing is wrong."""

    exit_code = 0
