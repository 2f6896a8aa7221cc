"""What a check found: fine, doubtful or unfit, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pipeline.errors import PipelineError

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """One line of the doctor's."""

    state: State
    what: str
    detail: str
    remedy: str = ""


def ok(what: str, detail: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", what, detail)


def warn(what: str, detail: str, remedy: str) -> Finding:
    """The job runs, but less is promised than could be, or an operator must know something."""
    return Finding("warn", what, detail, remedy)


def fail(what: str, detail: str, remedy: str) -> Finding:
    """The job will not start, or will stop."""
    return Finding("fail", what, detail, remedy)


def of_error(what: str, error: PipelineError) -> Finding:
    """An error's own words: what happened stands before the first semicolon, what to do behind it."""
    detail, _, remedy = str(error).partition("; ")
    return fail(what, detail, remedy or "see the text of the error")
