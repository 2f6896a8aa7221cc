"""The mutants of speed: of what is left out to be fast, and of benchmarks, whose figures are of exact output alone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SEQUEL = "pipeline.flow.sequel"
SEQUELS = "tests/integration/test_sequels.py::test_what_comes_meanwhile_is_written_once_and_no_row_is_read_again"

MEASURED = (
    Mutant(
        "sequel-of-the-same-rows",
        SEQUEL,
        {"plan = step.withNewChildInternal(plan)": "plan = step"},
        SEQUELS,
    ),
    Mutant(
        "rows-of-sequels-read-again",
        SEQUEL,
        {"self._ahead = first != next_offsets": "self._ahead = False"},
        SEQUELS,
    ),
    Mutant(
        "batch-behind-sequels-that-ends-where-lanes-stand",
        SEQUEL,
        {"until = {lane: max(offset, next_offsets[lane]) for lane, offset in until.items()}": "until = next_offsets"},
        "tests/unit/test_sequel.py::test_a_batch_behind_sequels_has_what_the_lanes_have_not_and_ends_no_earlier_than_planned",
    ),
    Mutant(
        "time-of-an-older-batch",
        SEQUEL,
        {"if plan.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):": "if False:"},
        "tests/integration/test_sequels.py::test_a_function_that_asks_for_the_time_is_given_that_of_a_batch_of_its_own",
    ),
    Mutant(
        "time-of-an-older-batch-by-its-name",
        SEQUEL,
        {"return not catalyst.optimizer.SpecialDatetimeValues.apply(plan).fastEquals(plan)": "return False"},
        "tests/spark/test_shares.py::test_a_function_that_asks_for_the_time_is_known_however_deep_it_does",
    ),
    Mutant(
        "lanes-far-ahead-of-spark",
        SEQUEL,
        {"if _offsets(planned, ends) > self._behind:": "if False:"},
        "tests/unit/test_sequel.py::test_spark_is_never_left_farther_behind_than_half_of_what_its_next_batch_may_have",
    ),
    Mutant(
        "log-cut-under-its-lanes",
        "pipeline.flow.going_on",
        {"check_log(self._settings, stand)": "pass"},
        "tests/unit/test_sequel.py::test_a_log_that_ends_before_its_lanes_stops_the_job",
    ),
    Mutant(
        "loss-measured-as-speed",
        "bench.workload",
        {"if counted.lost or counted.duplicated:": "if False:"},
        "tests/integration/test_bench.py::test_an_output_that_lacks_a_record_or_has_one_twice_fails_the_benchmark",
    ),
)
