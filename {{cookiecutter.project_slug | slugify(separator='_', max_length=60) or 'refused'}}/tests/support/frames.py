"""Kafka's transactional requests as they pass a proxy: what was asked, of whom, and what the broker said to it."""

from __future__ import annotations

import time
from typing import NamedTuple

PRODUCE = 0
FETCH = 1
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
END_TXN = 26
TRANSACTIONAL = {PRODUCE: "Produce", INIT_PRODUCER_ID: "InitProducerId", ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn"}
TRANSACTIONAL[END_TXN] = "EndTxn"
# From these versions on, tagged fields end the header, and strings have a length of another form.
FLEXIBLE = {PRODUCE: 9, INIT_PRODUCER_ID: 2, ADD_PARTITIONS_TO_TXN: 3, END_TXN: 3}


class Frame(NamedTuple):
    """One transactional request; `error` is the broker's code, where the answer has one for the request as a whole."""

    at: float
    api_key: int
    correlation: int
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    commit: bool = False
    error: int | None = None

    @property
    def transaction(self) -> tuple[str, int, int]:
        """What tells it from any other transaction: a producer of the product is good for one."""
        return self.transactional_id, self.producer_id, self.epoch

    @property
    def committed(self) -> bool:
        """Whether it asked for a commit, and the broker took it."""
        return self.commit and self.error == 0

    def of(self, app: str) -> bool:
        """Whether it is of a lane of this app."""
        return self.transactional_id.startswith(f"{app}.")


def frame_of(request: bytes, answer: bytes | None) -> Frame | None:
    """Read a request of a transaction; nothing if it is none."""
    api_key, version = int.from_bytes(request[:2]), int.from_bytes(request[2:4])
    if api_key not in TRANSACTIONAL:
        return None
    flexible = version >= FLEXIBLE[api_key]
    name, at = _string(request, 8, flexible=False)  # the client's own; of the old form in every version
    name, at = _string(request, at + flexible, flexible=flexible)  # no client sends tags, but their count of 0
    if not name:
        return None
    frame = Frame(time.time(), api_key, int.from_bytes(request[4:8]), name)
    if api_key == INIT_PRODUCER_ID:
        return frame._replace(error=error_of(request, answer))
    if api_key != END_TXN:
        return frame
    return frame._replace(
        producer_id=int.from_bytes(request[at : at + 8], signed=True),
        epoch=int.from_bytes(request[at + 8 : at + 10]),
        commit=request[at + 10] == 1,
        error=error_of(request, answer),
    )


def error_of(request: bytes, answer: bytes | None) -> int | None:
    """The code in the answer to InitProducerId or EndTxn; nothing if the broker was not asked, or did not answer."""
    if answer is None:
        return None
    at = _error_at(request)
    return int.from_bytes(answer[at : at + 2])


def with_error(request: bytes, answer: bytes, code: int) -> bytes:
    """The same answer, but for the code in it."""
    at = _error_at(request)
    return answer[:at] + code.to_bytes(2) + answer[at + 2 :]


def _error_at(request: bytes) -> int:
    tags = int.from_bytes(request[2:4]) >= FLEXIBLE[int.from_bytes(request[:2])]
    return 4 + tags + 4  # correlation, tags, throttle time


def _string(data: bytes, at: int, *, flexible: bool) -> tuple[str, int]:
    """A string and where it ends; names here are shorter than 127 bytes, so that a length of the new form is a byte."""
    size = data[at] - 1 if flexible else int.from_bytes(data[at : at + 2], signed=True)
    start = at + (1 if flexible else 2)
    return data[start : start + max(size, 0)].decode(errors="replace"), start + max(size, 0)
