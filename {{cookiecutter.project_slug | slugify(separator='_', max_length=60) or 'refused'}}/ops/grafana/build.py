"""Writes the dashboards: `python -m ops.grafana.build`, in the project's folder.

Guarantee: `dashboards/*.json` are exactly what this code makes, with nothing of the day or the machine in them; a test
holds them against it. Change the code, never the JSON.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from ops.grafana.board import RUNBOOK_UID, pages
from ops.grafana.lanes import lanes
from ops.grafana.overview import overview
from ops.grafana.records import records
from ops.grafana.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grafana_foundation_sdk.builders.dashboard import Dashboard

FOLDER = Path(__file__).with_name("dashboards")
RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"


def dashboards(runbook: Mapping[str, str]) -> dict[str, Dashboard]:
    """All dashboards by the name of their file."""
    return {
        "overview": overview(runbook),
        "lanes": lanes(runbook),
        "records": records(runbook),
        "transactions": transactions(runbook),
        "runbook": pages(
            RUNBOOK_UID, "Pipeline: runbook", "What each alert means and what to do: docs/runbook.md.", runbook
        ),
    }


def entries(text: str) -> dict[str, str]:
    """The entries of the runbook by heading."""
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {heading: content.strip() for heading, content in zip(parts[::2], parts[1::2], strict=True)}


def rendered() -> dict[str, str]:
    """The files as they must be."""
    runbook = entries(RUNBOOK.read_text(encoding="utf-8"))
    return {f"{name}.json": _text(made) for name, made in dashboards(runbook).items()}


def _text(made: Dashboard) -> str:
    plain = json.loads(JSONEncoder().encode(made.build()), object_hook=_without_defaults)
    return json.dumps(plain, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _without_defaults(part: dict[str, object]) -> dict[str, object]:
    """Leave out what the library sets unasked: links and annotations behind a menu, a footer that tables lost."""
    return {
        key: value
        for key, value in part.items()
        if key != "footer" and (key, value) != ("placement", "inControlsMenu") and not key.startswith("auto_")
    }


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
