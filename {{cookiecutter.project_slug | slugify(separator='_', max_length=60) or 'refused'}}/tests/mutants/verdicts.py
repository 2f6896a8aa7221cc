"""The mutants of verdicts on many records at once."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

JUDGE = "pipeline.lanes.verdicts"
LONG_STREAMS = "tests/unit/test_verdicts.py::test_long_streams_that_mostly_rise_are_judged_alike"
CROWDS = "tests/unit/test_crowd.py::test_long_streams_of_many_producers_are_judged_alike"

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
        "tests/unit/test_cost.py::test_a_full_ledger_forgets_at_the_record_that_lacks_one_byte",
    ),
    Mutant(
        "the-newest-forgotten-first",
        "pipeline.lanes.forgetting",
        {"if after > time:  # its producer has had no fresh id since": "if after <= time:"},
        CROWDS,
    ),
    Mutant(
        "a-renewed-producer-taken-for-the-oldest",
        "pipeline.lanes.crowd",
        {
            "order = np.concatenate((before.order[last[before.order] < 0], by_time[by_time >= 0]))": (
                "order = np.append(before.order, np.arange(len(before.order), len(newest)))"
            )
        },
        CROWDS,
    ),
    Mutant(
        "more-bytes-than-counted",
        "pipeline.lanes.cost",
        {"PRODUCER_COST = 48": "PRODUCER_COST = 38"},
        "tests/unit/test_cost.py::test_the_widest_numbers_take_no_more_than_they_cost",
    ),
    Mutant(
        "far-ids-packed-into-one-number",
        JUDGE,
        {"if int(txns.max()) - lowest >= WIDEST:": "if False:"},
        "tests/unit/test_verdicts.py::test_of_ids_too_far_apart_for_one_number_none_is_taken_for_another",
    ),
    Mutant(
        "kept-record-without-its-hash",
        "pipeline.lanes.kept",
        {
            "return Recalled(value, told.end, told.by) if _digest(value) == told.digest else None": (
                "return Recalled(value, told.end, told.by)"
            )
        },
        "tests/unit/test_kept.py::test_a_file_that_holds_anything_else_is_not_believed",
    ),
    Mutant(
        "one-range-twice-in-a-ledger-believed",
        "pipeline.lanes.columns",
        {"rising = new": "rising = np.ones(total, bool)"},
        "tests/unit/test_record.py::test_ranges_of_one_transaction_that_do_not_rise_stop",
    ),
    Mutant(
        "falling-ranges-of-a-ledger-believed",
        "pipeline.lanes.columns",
        {"rising = new | (leaps > 0)": "rising = new | (leaps != 0)"},
        "tests/unit/test_record.py::test_ranges_of_one_transaction_that_do_not_rise_stop",
    ),
    Mutant(
        "older-record-kept-by-an-earlier-task",
        "pipeline.flow.batch",
        {
            "kept = {report.partition: report.kept for report in reports if report.record}": (
                "kept = {report.partition: report.kept for report in reports if report.kept}"
            )
        },
        "tests/unit/test_kept.py::test_what_a_task_has_put_into_a_file_is_handed_over_as_it_is",
    ),
)
