"""A whole job full of what is as large as it may be: every record has its outcome, and no worker takes 1 GiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.hostile import BILLION_ITEMS, CEILING, LARGEST, large, memory

from pipeline.local.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.fault("A9")
@pytest.mark.bad_input("batch of some kilobytes that unpacks to 300 MB, with values of a megabyte", "each its own")
def test_a_worker_takes_less_than_a_gigabyte_whatever_is_sent(tmp_path: Path) -> None:
    values = large()
    unusable = sum(value in {BILLION_ITEMS, bytes(LARGEST)} for value in values)
    with Broker() as broker:
        seen = memory(broker.bootstrap, tmp_path)
    assert seen.count("read") == len(values)
    assert seen.letters == unusable
    assert seen.count("written") == len(values) - unusable
    assert max(seen.peaks.values()) < CEILING, seen.peaks
