"""The mutants of windows and of dedup by any id, and of the audit that must see what they do."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

AUDIT_TESTS = "tests/unit/test_audit_shuffled.py"

WINDOWS = (
    Mutant(
        "dedup-that-lets-everything-through",
        "pipeline.flow.window_dedup",
        {
            "return bounded.dropDuplicatesWithinWatermark([dedup.id_column]).drop(BATCH_TIME)": (
                "return bounded.drop(BATCH_TIME)"
            )
        },
        "tests/integration/test_window_dedup.py"
        "::test_an_id_is_written_once_over_restarts_and_partitions_however_far_one_is_behind",
    ),
    Mutant(
        "repeats-of-an-id-not-timed",
        "pipeline.observe.audit.repeats",
        {"result.too_soon.append(name)": "pass"},
        f"{AUDIT_TESTS}::test_an_id_that_was_written_again_within_the_horizon_is_found",
    ),
    Mutant(
        "loss-of-a-result-not-counted",
        "pipeline.observe.audit.shuffled",
        {"here.lost += max(expected - there, 0)": "pass"},
        f"{AUDIT_TESTS}::test_what_is_spoilt_is_found",
    ),
    Mutant(
        "any-record-taken-for-late",
        "pipeline.observe.audit.shuffled",
        {"if time > watermark or not justified:": "if False:"},
        f"{AUDIT_TESTS}::test_a_late_record_that_is_there_twice_or_was_not_late_is_found",
    ),
    Mutant(
        "order-of-results-not-looked-at",
        "pipeline.observe.audit.found",
        {"self.out_of_order += 1": "pass"},
        f"{AUDIT_TESTS}::test_what_is_spoilt_is_found",
    ),
    Mutant(
        "sessions-cut-short",
        "pipeline.flow.sessions",
        {"return SESSION in kinds and OTHER not in kinds": "return False"},
        "tests/spark/test_windows.py::test_windows_with_such_a_condition_are_refused_before_a_record_is_read",
    ),
    Mutant(
        "late-payments-judged-alone",
        "pipeline.flow.corrections",
        {"return _CORRECTS.get()": "return False"},
        "tests/spark/test_windows.py::test_a_late_payment_adds_to_the_totals_and_is_left_to_a_person",
    ),
    Mutant(
        "replay-as-weak-as-the-live-app",
        "pipeline.flow.stretch",
        {'values["delivery"]["semantics"] = "exactly-once"  # whatever the live job\'s': "pass"},
        "tests/integration/test_replay_log.py::test_a_replay_is_exactly_once_whatever_the_live_app_is",
    ),
)
