"""Producer epochs spent as quickly as a broker gives them out: by InitProducerId alone, over one plain connection."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from tests.support.frames import INIT_PRODUCER_ID
from tests.support.kafka import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
CONCURRENT = 51  # the last transaction of the id is still being ended
LAST_EPOCH = 32_767


class Given(NamedTuple):
    """What a broker gave a producer."""

    producer_id: int
    epoch: int


def fences(bootstrap: str, transactional_id: str, timeout_ms: int = 10_000) -> Iterator[Given]:
    """Fence a transactional id again and again; its coordinator must be the one node of the cluster."""
    host, _, port = bootstrap.rpartition(":")
    name = transactional_id.encode()
    body = struct.pack(">h", len(name)) + name + struct.pack(">i", timeout_ms)
    request = struct.pack(">hhih", INIT_PRODUCER_ID, VERSION, 0, -1) + body
    with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as broker, broker.makefile("rb") as answers:
        while True:
            broker.sendall(struct.pack(">i", len(request)) + request)
            answer = answers.read(int.from_bytes(answers.read(4)))
            _, _, error, producer_id, epoch = struct.unpack(">iihqh", answer)
            if error == CONCURRENT:
                continue
            assert error == 0, f"error {error}"
            yield Given(producer_id, epoch)
