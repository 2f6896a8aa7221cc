"""The mutants of verdicts on many records at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

JUDGE = "pipeline.lanes.verdicts"
LONG_STREAMS = "tests/unit/test_verdicts.py::test_long_streams_that_mostly_rise_are_judged_alike"

VERDICTS = (
    Mutant(
        "falling-ids-taken-as-rising",
        JUDGE,
        {"falls = np.flatnonzero(~rising)": "rising = np.ones_like(rising)\nfalls = np.flatnonzero(~rising)"},
        LONG_STREAMS,
    ),
    Mutant(
        "a-full-ledger-judged-at-once",
        JUDGE,
        {"return most <= limits.ledger_bytes": "return True"},
        LONG_STREAMS,
    ),
    Mutant(
        "far-ids-packed-into-one-number",
        JUDGE,
        {"if int(txns.max()) - lowest < WIDEST:": "if True:"},
        "tests/unit/test_verdicts.py::test_of_ids_too_far_apart_for_one_number_none_is_taken_for_another",
    ),
    Mutant(
        "kept-record-without-its-hash",
        "pipeline.lanes.kept",
        {
            "return Recalled(value, told.end) if _digest(value) == told.digest else None": (
                "return Recalled(value, told.end)"
            )
        },
        "tests/unit/test_kept.py::test_a_file_that_holds_anything_else_is_not_believed",
    ),
)
