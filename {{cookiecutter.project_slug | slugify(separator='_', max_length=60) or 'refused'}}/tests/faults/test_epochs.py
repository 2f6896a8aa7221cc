"""A lane's epochs run out: Kafka gives its transactional id a new producer id, and the lane goes on.

D9   every transaction takes a fresh producer, hence an epoch; after 32,767 of them the count begins again
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.epochs import LAST_EPOCH, fences
from tests.support.lanes import provisioned

from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from tests.support.arena import Evidence

# So many transactions of the product's own lead across the roll-over, and on.
CROSSING = 12


@pytest.mark.fault("D9")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_lane_is_written_on_exactly_when_its_epochs_run_out(evidence: Evidence) -> None:
    evidence.seed = 0
    with Broker() as broker:
        app = provisioned(broker.bootstrap, transaction={"chunk_rows": 10})
        app.write(0, 20)
        lane = app.settings.transactional_id(0)
        first = next(given := fences(broker.bootstrap, lane))
        near = next(each for each in given if each.epoch >= LAST_EPOCH - CROSSING // 2)
        assert near.producer_id == first.producer_id
        assert near.epoch - first.epoch > 32_000, "the epochs were to be spent one by one"
        for number in range(CROSSING):  # in chunks of 10 rows: two transactions each
            app.write(20 * (number + 1), 20 * (number + 2))
        after = next(fences(broker.bootstrap, lane))
        assert after.producer_id != first.producer_id, "the count was to begin again"
        assert after.epoch < 3 * CROSSING
        assert app.written() == list(range(20 * (CROSSING + 1)))
        assert app.lane().counters.verdicts == {"fresh": 20 * (CROSSING + 1)}
