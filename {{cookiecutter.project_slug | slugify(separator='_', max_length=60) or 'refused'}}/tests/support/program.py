"""The program as a user calls it, on settings that a test made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.settings import Settings


def settings_file(folder: Path, settings: Settings) -> Path:
    """Write settings as the file from which they would be read."""
    lines = []
    for section, keys in settings.model_dump().items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path = folder / "pipeline.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
