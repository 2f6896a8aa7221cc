"""The audit's findings, for a person, for a machine, and for an exit code.

Guarantee: `exact` is true only if nothing whatever was found amiss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.observe.audit.placement import Grown
    from pipeline.observe.audit.tally import Counts

COLUMNS = ("", "expected", "found", "lost", "duplicated", "unexpected")
# What each delivery allows. Where records are missing or repeated, the order of equal ones cannot be told.
ALLOWED: dict[str, tuple[str, ...]] = {
    "exactly-once": (),
    "at-least-once": ("duplicated", "out_of_order"),
    "at-most-once": ("lost", "out_of_order"),
}


@dataclass(frozen=True)
class AuditResult:
    """All that was found.

    Four are no faults: `behind` counts, per partition, committed records not yet read by the job, `lost_offsets`
    those that retention deleted before the job read them, which `provision --accept-loss` passed over, `grown`
    names output topics that got more partitions, so that keys moved, and `repeated_ids` counts ids that `window` dedup
    let through more than once. Those among them that came within its horizon, `repeated_too_soon`, are one.
    """

    outputs: Mapping[str, Counts]
    dead_letters: Mapping[str, Counts]
    out_of_order: int
    split_keys: int
    counters_wrong: Sequence[str]
    open_transactions: Sequence[str]
    behind: Mapping[int, int]
    read: int
    verdicts: Mapping[str, int]
    examples: Sequence[str]
    lost_offsets: int = 0
    grown: Sequence[Grown] = ()
    delivery: str = "exactly-once"
    repeated_ids: int = 0
    repeated_too_soon: int = 0
    repeats_accepted: bool = False

    @property
    def expected(self) -> int:
        """Output records and dead letters that must be there."""
        return self._sum("expected")

    @property
    def found(self) -> int:
        """Output records and dead letters that are there."""
        return self._sum("found")

    @property
    def lost(self) -> int:
        """Expected, but not there."""
        return self._sum("lost")

    @property
    def duplicated(self) -> int:
        """There more often than expected."""
        return self._sum("duplicated")

    @property
    def unexpected(self) -> int:
        """There, but never expected with this content."""
        return self._sum("unexpected")

    @property
    def exact(self) -> bool:
        """Whether output, dead letters, order, counters and transactions are all as they must be."""
        wrong = self.lost + self.duplicated + self.unexpected + self.out_of_order + self.split_keys
        return not wrong and not self.unaccepted_repeats and not self.counters_wrong and not self.open_transactions

    @property
    def kept(self) -> bool:
        """Whether the delivery that is set was kept: all is exact, but for what it allows."""
        allowed = ALLOWED[self.delivery]
        others = ("out_of_order", "split_keys", "counters_wrong", "open_transactions", "unaccepted_repeats")
        wrong = [*COLUMNS[3:], *others]
        return not any(getattr(self, name) for name in wrong if name not in allowed)

    @property
    def unaccepted_repeats(self) -> int:
        """Ids that came again too soon, unless that was accepted."""
        return 0 if self.repeats_accepted else self.repeated_too_soon

    @property
    def caught_up(self) -> bool:
        """Whether the job had read all that is committed in the source topic."""
        return not any(self.behind.values())

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return f"audit: {self.expected} expected, {self.found} found, {self.lost} lost, {self.duplicated} duplicated"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's rows: each output topic, each reason of dead letters, and their sum."""
        named = [
            *self.outputs.items(),
            *((f"dead letters: {reason}", counts) for reason, counts in self.dead_letters.items()),
        ]
        rows = [(name, *(str(getattr(counts, column)) for column in COLUMNS[1:])) for name, counts in named]
        return [*rows, ("all", *(str(getattr(self, column)) for column in COLUMNS[1:]))]

    def remarks(self) -> list[str]:
        """Say what does not fit into the table: figures first, then everything that is wrong."""
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items() if count)
        lines = [f"source: {self.read} records read: {verdicts or 'none judged'}"]
        if ALLOWED[self.delivery]:
            lines.append(f"delivery {self.delivery}: allowed is {' and '.join(ALLOWED[self.delivery])}, by setting")
        if self.lost_offsets:
            lines.append(f"lost to retention, accepted: {self.lost_offsets} offsets")
        if not self.caught_up:
            waiting = ", ".join(f"partition {partition}: {count}" for partition, count in self.behind.items() if count)
            lines.append(f"behind: {sum(self.behind.values())} committed source records not yet read ({waiting})")
        lines += [topic.line for topic in self.grown]
        if self.out_of_order:
            lines.append(f"out of order: {self.out_of_order} records stand behind a later one of their key")
        if self.split_keys:
            lines.append(f"split keys: {self.split_keys} keys stand in more than one partition of a topic")
        if self.repeated_ids:
            accepted = ", accepted" if self.repeated_too_soon and self.repeats_accepted else ""
            soon = f"{self.repeated_too_soon} of them within the horizon{accepted}"
            lines.append(f"ids written more than once: {self.repeated_ids}, {soon}")
        lines += [f"counter: {line}" for line in self.counters_wrong]
        lines += [f"open transaction: {line}" for line in self.open_transactions]
        return [*lines, *self.examples]

    def table(self) -> Table:
        """Draw the rows."""
        table = Table(*COLUMNS)
        for column in table.columns[1:]:
            column.justify = "right"
        rows = self.rows()
        for row in rows:
            table.add_row(*row, end_section=row is rows[-2])
        return table

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON has."""
        return {
            "exact": self.exact,
            "delivery": self.delivery,
            "kept": self.kept,
            "caught_up": self.caught_up,
            **{column: getattr(self, column) for column in COLUMNS[1:]},
            "outputs": {topic: vars(counts) for topic, counts in self.outputs.items()},
            "dead_letters": {reason: vars(counts) for reason, counts in self.dead_letters.items()},
            "out_of_order": self.out_of_order,
            "split_keys": self.split_keys,
            "repeated_ids": self.repeated_ids,
            "repeated_too_soon": self.repeated_too_soon,
            "repeats_accepted": self.repeats_accepted,
            "grown": [grown._asdict() for grown in self.grown],
            "counters_wrong": list(self.counters_wrong),
            "open_transactions": list(self.open_transactions),
            "behind": {str(partition): count for partition, count in self.behind.items()},
            "read": self.read,
            "verdicts": dict(self.verdicts),
            "examples": list(self.examples),
            "lost_offsets": self.lost_offsets,
            "line": self.line,
        }

    def _sum(self, column: str) -> int:
        counts = [*self.outputs.values(), *self.dead_letters.values()]
        return sum(int(getattr(each, column)) for each in counts)
