"""How soon a fence asks again on a real broker, and that it never does while an answer may be on its way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError
from tests.support.frames import INIT_PRODUCER_ID
from tests.support.lanes import App, provisioned
from tests.support.proxy import ProxiedBroker

from pipeline.lanes.fence import UNASKED_SECONDS
from pipeline.lanes.takeover import fence

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = 5
# Later than a fence is called anew for the first time.
LATE_SECONDS = 0.2


@pytest.fixture(scope="module")
def proxied() -> Iterator[ProxiedBroker]:
    with ProxiedBroker() as running:
        yield running


@pytest.fixture
def app(proxied: ProxiedBroker) -> App:
    """Return an app whose clients go through the proxy, with no marker still to be written."""
    app = provisioned(proxied.proxied)
    fence(app.settings, 0)
    return app


def asked(proxied: ProxiedBroker, app: App) -> int:
    """Return how often the lane's id was asked for."""
    name = app.settings.transactional_id(0)
    return sum(
        frame.api_key == INIT_PRODUCER_ID and frame.transactional_id == name for frame in list(proxied.proxy.frames)
    )


def test_a_fence_that_is_told_not_yet_asks_again_before_the_client_would(proxied: ProxiedBroker, app: App) -> None:
    took = []
    for _ in range(TIMES):
        before = asked(proxied, app)
        proxied.proxy.refuse(INIT_PRODUCER_ID, KafkaError.CONCURRENT_TRANSACTIONS)
        begun = time.monotonic()
        fence(app.settings, 0)
        took.append(time.monotonic() - begun)
        assert asked(proxied, app) - before == 2
    assert min(took) < UNASKED_SECONDS, "the client alone waits so long each time"


def test_a_fence_whose_answer_is_late_asks_no_second_time(proxied: ProxiedBroker, app: App) -> None:
    before = asked(proxied, app)
    proxied.proxy.after_next(INIT_PRODUCER_ID, lambda: time.sleep(LATE_SECONDS))
    transaction = fence(app.settings, 0)
    assert asked(proxied, app) - before == 1
    transaction.begin()
    transaction.put_lane_record(app.settings.lane_topic, 0, b"key", b"value")
    transaction.flush()  # whoever had asked twice would be fenced by itself
    transaction.abandon()
