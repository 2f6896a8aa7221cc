"""`pipeline driver` and `pipeline executor`: by these words Spark on Kubernetes starts the image.

Guarantee: people are not shown them, and a call that Spark did not make is one line.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer  # noqa: TC002  it looks its own types up when the command is called

from pipeline.errors import PipelineError
from pipeline.observe.logs import printable

if TYPE_CHECKING:
    from collections.abc import Callable

AS_IT_IS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add(app: typer.Typer, program: Callable[[list[str]], object]) -> None:
    """Add both commands; `program` runs the command line with other arguments."""

    @app.command(hidden=True, context_settings=AS_IT_IS)
    def driver(context: typer.Context) -> None:
        """Be the driver of a pod."""
        from pipeline.flow import pod  # noqa: PLC0415  it imports Spark

        os.environ |= pod.driver_environ(context.args, os.environ)
        try:
            program(pod.program_arguments(context.args))
        except PipelineError as error:
            print(f"error: {printable(str(error))}", file=sys.stderr)
            sys.exit(pod.exit_code(error))

    @app.command(hidden=True, context_settings=AS_IT_IS)
    def executor() -> None:
        """Be an executor."""
        from pipeline.flow import pod  # noqa: PLC0415

        command = pod.executor_command(os.environ)
        # Java takes the place of this process, so that it hears SIGTERM itself.
        os.execv(command[0], command)  # noqa: S606  a list built by us
