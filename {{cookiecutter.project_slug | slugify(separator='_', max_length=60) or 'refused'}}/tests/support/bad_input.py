"""`python -m tests.support.bad_input` writes docs/bad-input.md from the tests: hostile values, and marks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.hostile import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bad-input.md"
TABLE_TEST = "unit/test_hostile.py: test_a_hostile_value_gets_a_reason_in_bounded_time_and_memory"
HEAD = """# Bad input

What no upstream should send, and what becomes of it. Unless said otherwise that is a dead letter, with this reason in
the header `dead-letter-reason` and a sentence in `dead-letter-detail`, in the transaction of its chunk; its neighbours
in the batch are not touched. Written from the tests by `python -m tests.support.bad_input`; do not edit.

A dead letter is the original record, byte for byte: key, value, headers; then come `dead-letter-reason`, `-detail`,
`-topic`, `-partition`, `-offset`, `-timestamp` and `-version`. A null value (tombstone) is no event of a schema: its
reason is `decode`. Null and empty keys are told apart, and kept. Headers of the identity must be there once; all others
are nobody's business, in any number and of any bytes. Limits: `codec.max_bytes`, `codec.max_items`, `codec.max_depth`.

A letter that its topic would not take (`max.message.bytes`, uncompressed) is cut. The header `dead-letter-cut`, right
behind the original ones, then holds three numbers: the bytes that key, value and headers had (10 more for each header).
Of what the topic takes, 384 bytes, this header and those that follow it are set aside. The original headers are kept if
they take at most half of the rest, or left out; the key gets at most half of what is left then, and the value the
remainder. Such a letter cannot be replayed. `pipeline audit` expects letters to be cut in just this way.

`pipeline dead-letters replay` sends a letter back to the source partition it came from, with a new identity that
follows from its place. It looks first, behind a fence, which letters the source already holds: what was sent back once
is never sent again, whatever was killed meanwhile.

Spark's reader unpacks a compressed batch record by record; a record must fit into `spark.driver_memory`. All other
readers here unpack a batch whole, up to 400 MB of it, and some kilobytes of zstd can be more. A dead letter of such a
batch is cut to nothing but its headers, with `-1,-1,-1` in `dead-letter-cut` and `-1` for its timestamp; the record
itself stays in the source, which `pipeline audit` and `replay` then cannot read: they end with one line that says so.

Three things that an upstream may send do stop the job, with one line and nothing lost: a timestamp that Spark cannot
hold, if the topic takes it (`pipeline doctor` warns of that); a record larger than `spark.driver_memory`; and so many
names of producers that the ledger, which remembers each, outgrows a record of the lane topic.

Names of headers are text. A record with a name that is not UTF-8 is processed like any other; if it becomes a dead
letter, its headers cannot be read back, and the header `dead-letter-headers` says so in their place. `pipeline audit`
cannot judge such a record, and ends with one line that names it.

| input | outcome | test |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [(f"Avro: {name}", f"`{hostile.reason}`", TABLE_TEST) for name, hostile in HOSTILE.items()]
    rows += sorted(marked())
    return HEAD + "".join(f"| {name} | {outcome} | `{test}` |\n" for name, outcome, test in rows)


def marked() -> Iterator[tuple[str, str, str]]:
    """Every `bad_input` mark of a test: input, outcome, and the test's name."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        names = {"FRAMING": "framing", "UNKNOWN_SCHEMA": "unknown-schema", "SCHEMA_MISMATCH": "schema-mismatch"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                test = f"{path.relative_to(ROOT / 'tests')}: {node.name}"
                for mark in filter(is_mark, node.decorator_list):
                    given, outcome = mark.args  # type: ignore[attr-defined]
                    said = str(outcome.value) if isinstance(outcome, ast.Constant) else names[outcome.id]
                    yield str(given.value), said if " " in said else f"`{said}`", test


def is_mark(node: ast.expr) -> bool:
    """Whether a decorator is `pytest.mark.bad_input(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bad_input"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
