"""Whether windows are computed for the first time, or over late events whose results are added to earlier ones.

    from pipeline.flow.corrections import is_correction

    verdict = lit("review") if is_correction() else by_rule()

Guarantee: true only while `windows.late = "correct"` runs the user's function over the late events of a batch, in the
job and in the audit alike. Counts and sums of these may be added to what was written before. A rule over them cannot:
it would judge a payment without those that came on time.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CORRECTS: ContextVar[bool] = ContextVar("corrects", default=False)


def is_correction() -> bool:
    """Whether the events are late ones, and the results corrections of others; ask inside your function."""
    return _CORRECTS.get()


@contextmanager
def correcting(now: bool) -> Iterator[None]:  # noqa: FBT001  its one argument
    """What the user's function is told meanwhile."""
    token = _CORRECTS.set(now)
    try:
        yield
    finally:
        _CORRECTS.reset(token)
