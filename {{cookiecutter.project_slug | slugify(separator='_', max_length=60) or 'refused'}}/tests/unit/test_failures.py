"""What ended a query, told in one line: also where Java alone knew why, and is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from tests.support.figures import settings_of

from pipeline.errors import PipelineError, Stopped
from pipeline.flow.failures import Failure, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Raised(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """Raised in Java, which is asked what it says only when somebody reads it."""

    def __init__(self, says: str | Exception) -> None:
        """An exception is what comes of asking."""
        self.says = says

    def __str__(self) -> str:
        """Ask."""
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


GONE: list[Callable[[], BaseException]] = [
    lambda: ConnectionRefusedError(111, "Connection refused"),
    lambda: Py4JNetworkError("Answer from Java side is empty"),
    lambda: Raised(ConnectionRefusedError(111, "Connection refused")),
    lambda: Raised(Py4JError("An error occurred while calling o1.toString")),
]
SHUT_DOWN = "org.apache.spark.SparkException: Job 7 cancelled because SparkContext was shut down"


def told(error: BaseException) -> PipelineError:
    """Return what the job ends with."""
    return failure_of(Failure.of(error), settings_of(), Mock(), {})


@pytest.mark.parametrize("error", GONE)
def test_java_that_is_gone_or_going_is_told_in_one_line(error: Callable[[], BaseException]) -> None:
    assert Failure.of(error()).is_lost
    assert str(told(error())).startswith("Spark's Java process is gone")


def test_spark_that_was_told_to_end_is_lost_and_said_to_be_by_whoever_did_not_ask_for_it() -> None:
    assert Failure.of(Raised(SHUT_DOWN)).is_lost
    assert str(told(Raised(SHUT_DOWN))) == f"a batch failed: {SHUT_DOWN}"


def test_a_function_of_the_user_that_says_so_is_no_loss_of_spark() -> None:
    error = Raised(f"{SHUT_DOWN}\nTraceback (most recent call last):\nRuntimeError: mine")
    assert not Failure.of(error).is_lost
    assert str(told(error)) == "a batch failed: RuntimeError: mine"


def test_what_failed_in_spark_is_no_loss_of_it() -> None:
    error = Raised("Job aborted: most recent failure: task 1 (host): java.lang.IllegalStateException: no\n\nmore")
    assert not Failure.of(error).is_lost
    assert str(told(error)) == "a batch failed: java.lang.IllegalStateException: no"


def test_what_this_program_raised_is_told_as_it_is() -> None:
    error = Stopped("SparkContext was shut down")
    assert not Failure.of(error).is_lost
    assert told(error) is error


def test_what_java_said_is_kept_when_java_goes() -> None:
    error = Raised("Job aborted: most recent failure: task 1 (host): java.lang.IllegalStateException: no\n\nmore")
    failure = Failure.of(error)
    error.says = ConnectionRefusedError(111, "Connection refused")
    assert not failure.is_lost
    assert str(failure_of(failure, settings_of(), Mock(), {})) == "a batch failed: java.lang.IllegalStateException: no"
