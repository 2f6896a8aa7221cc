"""Tables of figures, as Markdown: readable on a terminal, and the same text in `docs/performance.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Column(NamedTuple):
    """One column: its figure, its head, how it is written."""

    name: str
    head: str
    shown: Callable[[Any], str]


def number(digits: int) -> Callable[[Any], str]:
    """A number with so many digits behind the point; what is missing is a dash."""
    return lambda value: "-" if value is None else f"{value:,.{digits}f}"


def with_spread(digits: int) -> Callable[[Any], str]:
    """A median, and in brackets the lowest and the highest of the repeats."""
    plain = number(digits)

    def shown(value: Mapping[str, Any] | None) -> str:
        if value is None:
            return "-"
        return f"{plain(value['median'])} ({plain(value['low'])} to {plain(value['high'])})"

    return shown


def table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows under heads, in columns of equal width."""
    cells = [[column.head for column in columns]]
    cells += [[column.shown(row.get(column.name)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
