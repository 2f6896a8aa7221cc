"""Dead letters: source records that are kept aside with their reason, in the transaction of their chunk.

Guarantee: key, value and headers are the original bytes; reason and source position come in headers behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline import __version__
from pipeline.lanes.originals import originals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.lanes.transaction import Sendable
    from pipeline.settings import Settings

# A detail may quote a decoder's message about hostile bytes: bounded, so that the letter still fits its topic.
DETAIL_CHARACTERS = 200


def dead_letters(settings: Settings, partition: int, dead: Sequence[tuple[int, str, str]]) -> Iterator[Sendable]:
    """Read the originals again and address them to the dead letter topic, in offset order."""
    source = settings.source
    found = originals(source.bootstrap, source.topic, partition, [offset for offset, _, _ in dead])
    for offset, reason, detail in dead:
        message = found[offset]
        position = [
            ("dead-letter-reason", reason.encode()),
            ("dead-letter-detail", detail[:DETAIL_CHARACTERS].encode()),
            ("dead-letter-topic", source.topic.encode()),
            ("dead-letter-partition", b"%d" % partition),
            ("dead-letter-offset", b"%d" % offset),
            ("dead-letter-timestamp", b"%d" % message.timestamp()[1]),
            ("dead-letter-version", __version__.encode()),
        ]
        headers = [*(message.headers() or []), *position]
        yield settings.output.dead_letter_topic, message.key(), message.value(), headers
