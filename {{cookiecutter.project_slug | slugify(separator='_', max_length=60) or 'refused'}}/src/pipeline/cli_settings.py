"""`pipeline settings`: what takes effect, and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pipeline.effective import as_toml, effective

SettingsFile = Annotated[Path, typer.Option("--settings", "-s", envvar="PIPELINE_SETTINGS", help="The settings file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
DEFAULT_SETTINGS = Path("pipeline.toml")


def settings(settings_file: SettingsFile = DEFAULT_SETTINGS, *, as_json: AsJson = False) -> None:
    """Print every setting as it takes effect, with its origin: default, file, or environment. Secrets are not shown."""
    shown = effective(settings_file)
    print("\n".join([json.dumps(one._asdict()) for one in shown] if as_json else as_toml(shown)))
