"""`pipeline compare`, from the command line to its JSON: each delivery shows what it promises, and what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.job import SCHEMA
from tests.support.program import settings_file
from tests.support.running import ROOT

from pipeline.settings import build

if TYPE_CHECKING:
    from pathlib import Path

# Nine starts of a job, one after the other, and three audits.
SECONDS = 900


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_the_three_deliveries_side_by_side_lose_and_repeat_what_each_of_them_may(tmp_path: Path) -> None:
    schema = tmp_path / "payment.avsc"
    schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
    settings = build(
        {
            "app": {"id": "compared"},
            "source": {"bootstrap": "localhost:1", "topic": "payments"},
            "output": {"topics": ("receipts", "alerts"), "dead_letter_topic": "dead"},
            "codec": {"input": "json", "output": "json", "schema_file": str(schema)},
            "spark": {"master": "local[2,4]"},
        }
    )
    path = settings_file(tmp_path, settings)
    ran = subprocess.run(
        [sys.executable, "-m", "pipeline", "compare", "-s", str(path), "--payments", "2000", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = {semantics: (one["lost"], one["duplicated"]) for semantics, one in json.loads(ran.stdout).items()}
    assert found["exactly-once"] == (0, 0)
    lost, duplicated = found["at-least-once"]
    assert lost == 0 < duplicated
    lost, duplicated = found["at-most-once"]
    assert duplicated == 0 < lost
