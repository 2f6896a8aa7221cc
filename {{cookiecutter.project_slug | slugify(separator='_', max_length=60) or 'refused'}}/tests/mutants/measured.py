"""The mutants of the benchmarks: figures of an output that is not exact mean nothing."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MEASURED = (
    Mutant(
        "loss-measured-as-speed",
        "bench.workload",
        {"if counted.lost or counted.duplicated:": "if False:"},
        "tests/integration/test_bench.py::test_an_output_that_lacks_a_record_or_has_one_twice_fails_the_benchmark",
    ),
)
