"""`python -m bench.peer`: the pipeline as one of several on the same work, for a harness that knows only a command.

It relays IN_TOPIC to OUT_TOPIC, deduplicated by the identity headers, with the settings as shipped, until SIGTERM. The
environment says what and where: BOOTSTRAP, IN_TOPIC, OUT_TOPIC, PARTITIONS, STATE_DIR; PIPELINE_... is any setting.

But for one: a repeat is told by its id alone (`dedup.hashes` is 0), as by the other systems. As shipped, a repeat with
other bytes is a conflict, which is read again and kept as a dead letter: work that none of them does.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli
from pipeline.flow import job
from pipeline.flow.outputs import emit, output
from pipeline.flow.source import KEY
from pipeline.lanes.provision import provision
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


def sections(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Settings that say only what the work demands."""
    out = environ["OUT_TOPIC"]
    return {
        "app": {"id": f"{out}-relay"},
        "source": {"bootstrap": environ["BOOTSTRAP"], "topic": environ["IN_TOPIC"]},
        "output": {
            "topics": [out],
            "dead_letter_topic": f"{out}-dead",
            "partitions": int(environ.get("PARTITIONS", "8")),
            "replication": 1,
        },
        "codec": {"input": "bytes"},
        "metrics": {"port": 0},
    }


def settings_text(environ: Mapping[str, str]) -> str:
    """The same as a file, with repeats told by their ids alone."""
    lines = []
    for section, values in (sections(environ) | {"dedup": {"hashes": 0}}).items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines)


def relay(out: str, events: DataFrame) -> DataFrame:
    """Each record as it is."""
    return events.withColumn("outputs", emit(output(out, key=KEY, value="value")))


def main() -> None:
    """Provision, and run as the command line does."""
    path = Path(os.environ["STATE_DIR"], "pipeline.toml")
    path.write_text(settings_text(os.environ), encoding="utf-8")
    provision(load(path), print)
    job.Job = partial(job.Job, transform=partial(relay, os.environ["OUT_TOPIC"]))  # type: ignore[misc,assignment]
    sys.argv = ["pipeline", "run", "--settings", str(path)]
    cli.main()


if __name__ == "__main__":
    main()
