"""Sample events for a local stack: the workload of `payments.py`, without end, at a leisurely rate.

Guarantee: each start is a new upstream, with producer names of its own, so that nothing is taken for a re-send that is
none. Usage: python -m pipeline.local.sample create | send [--seconds 30]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic

from pipeline.errors import PipelineError
from pipeline.kafka import REQUEST_SECONDS, reachable
from pipeline.lanes.topics import Topics
from pipeline.local.events import send
from pipeline.settings import load

if TYPE_CHECKING:
    from pipeline.settings import Settings

PARTITIONS = 4
ENDLESS = 10**12
# Between two transactions of some 10,000 records each: enough to see, and no more than a laptop keeps for days.
SECONDS = 30.0


def create(settings: Settings) -> str:
    """Create the source topic, if it is missing; `provision` leaves that to the upstream."""
    topic, topics = settings.source.topic, Topics(settings.source.bootstrap)
    if topic in topics.describe([topic]):
        return f"topic {topic}: exists"
    with reachable(topics.bootstrap, f"create topic {topic}"):
        topics.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(REQUEST_SECONDS)
    return f"topic {topic}: created with {PARTITIONS} partitions"


def main(arguments: list[str]) -> int:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.local.sample", description=__doc__)
    parser.add_argument("what", choices=["create", "send"])
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"between two transactions (default: {SECONDS})")
    parser.add_argument("--payments", type=int, default=ENDLESS, help="how many are sent (default: no end)")
    parser.add_argument("--settings", type=Path, default=Path("pipeline.toml"))
    asked = parser.parse_args(arguments)

    def pause(done: int, count: int) -> None:
        sys.stdout.write(f"{done} payments sent\n")
        if done < count:
            time.sleep(asked.seconds)

    try:
        settings = load(asked.settings)
        if asked.what == "create":
            sys.stdout.write(f"{create(settings)}\n")
        else:
            source, form = settings.source, settings.codec.input
            upstream = int(time.time())
            send(source.bootstrap, source.topic, count=asked.payments, seed=upstream, form=form, progress=pause)
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
