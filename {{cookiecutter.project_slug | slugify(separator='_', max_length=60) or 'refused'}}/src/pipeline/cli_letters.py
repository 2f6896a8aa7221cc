"""`pipeline dead-letters`: browse what was set aside, and send it back after a fix.

Guarantee: what a hostile record holds is shown escaped, and never reaches the terminal as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.errors import PipelineError
from pipeline.settings import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.lanes.replay import Letter

SettingsFile = Annotated[Path, typer.Option("--settings", "-s", envvar="PIPELINE_SETTINGS", help="The settings file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Reason = Annotated[str, typer.Option("--reason", help="Only those with this reason, for example decode.")]
DEFAULT_SETTINGS = Path("pipeline.toml")
SHOWN_BYTES = 4_000
COLUMNS = ("letter", "reason", "detail", "source", "offset", "key", "bytes")

app = typer.Typer(no_args_is_help=True, help="Browse dead letters, and send them back to the source after a fix.")


@app.command("list")
def list_letters(
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    reason: Reason = "",
    most: Annotated[int, typer.Option("--most", min=1, help="Show no more than so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters: where each stands, why, and where it came from."""
    table = Table(*COLUMNS, box=None)
    count = 0
    for letter in _letters(settings_file, reason):
        count += 1
        if count > most:
            break
        row = _row(letter)
        if as_json:
            print(json.dumps(row))
        else:
            table.add_row(*(Text(str(row[name])) for name in COLUMNS))
    if not as_json:
        Console().print(table if count else "no dead letters")
        if count > most:
            Console().print("... and more; see --most and --reason")


@app.command()
def show(
    letter: Annotated[str, typer.Argument(help="Its place, as `list` shows it: partition:offset.")],
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Write the value's bytes as they are, and nothing else.")] = False,
) -> None:
    """Show one dead letter: its reason, where it came from, key, headers and value."""
    [found] = _chosen(settings_file, [letter])
    if raw:
        sys.stdout.buffer.write(found.value or b"")
        return
    for name, text in found.said.items():
        print(f"{name}: {_escaped(text.encode())}")
    print(f"key: {_escaped(found.key)}")
    for name, value in found.headers:
        print(f"header {_escaped(name.encode())}: {_escaped(value)}")
    print(f"value: {_escaped(found.value)}")


@app.command()
def replay(
    letters: Annotated[
        list[str] | None, typer.Argument(help="Their places: partition:offset, as `list` shows.")
    ] = None,
    settings_file: SettingsFile = DEFAULT_SETTINGS,
    *,
    reason: Reason = "",
) -> None:
    """Send dead letters back to the source with new identities: those named, or all with a reason; each only once."""
    from pipeline.lanes.replay import replay as send  # noqa: PLC0415

    if bool(letters) == bool(reason):
        msg = "say which: places (partition:offset), or --reason"
        raise typer.BadParameter(msg)
    found = _chosen(settings_file, letters) if letters else list(_letters(settings_file, reason))
    sent = send(load(settings_file), found)
    before = f"; {len(found) - sent} are there already" if sent < len(found) else ""
    print(f"{sent} dead letters sent back to their source partitions{before}")


def _letters(settings_file: Path, reason: str) -> Iterator[Letter]:
    from pipeline.lanes.replay import read_letters  # noqa: PLC0415

    return (one for one in read_letters(load(settings_file)) if not reason or one.said.get("reason") == reason)


def _chosen(settings_file: Path, names: list[str]) -> list[Letter]:
    wanted = set(names)
    found = [one for one in _letters(settings_file, "") if one.name in wanted]
    if missing := wanted - {one.name for one in found}:
        msg = f"no dead letter at {', '.join(sorted(missing))}; `pipeline dead-letters list` shows which there are"
        raise PipelineError(msg)
    return found


def _row(letter: Letter) -> dict[str, Any]:
    said = letter.said
    return {
        "letter": letter.name,
        "reason": said.get("reason", "?"),
        "detail": _escaped(said.get("detail", "").encode()),
        "source": f"{said.get('topic', '?')} [{said.get('partition', '?')}]",
        "offset": said.get("offset", "?"),
        "key": _escaped(letter.key),
        "bytes": len(letter.value or b""),
    }


def _escaped(data: bytes | None) -> str:
    """Bytes as text that a terminal cannot take for commands; what is not printable ASCII is escaped."""
    if data is None:
        return "(null)"
    text = data[:SHOWN_BYTES].decode(errors="backslashreplace").encode("unicode_escape").decode()
    return text if len(data) <= SHOWN_BYTES else f"{text} ... ({len(data)} bytes)"
