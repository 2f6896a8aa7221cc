"""The mutants of what runs on a cluster: the checkpoint's place, the pod's end, connections, lost lanes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLUSTER = (
    Mutant(
        "checkpoint-in-the-cluster-s-own-file-system",
        "pipeline.flow.checkpoint",
        {
            'return given if URI.match(given) else f"{LOCAL}{Path(given).absolute()}"': (
                "return given if URI.match(given) else str(Path(given).absolute())"
            )
        },
        "tests/unit/test_checkpoint_place.py::test_a_plain_path_is_the_drivers_own_wherever_the_cluster_keeps_its_files",
    ),
    Mutant(
        "replaced-pod-started-again",
        "pipeline.flow.pod",
        {
            'return 0 if isinstance(error, Replaced) else int(getattr(error, "exit_code", 1))': (
                'return int(getattr(error, "exit_code", 1))'
            )
        },
        "tests/unit/test_pod.py::test_only_a_job_that_was_replaced_ends_in_order_so_that_nobody_starts_it_again",
    ),
    Mutant(
        "pod-memory-of-the-settings",
        "pipeline.flow.pod",
        {"if name in properties:": 'if name == "spark.master":'},
        "tests/unit/test_pod.py::test_the_driver_takes_master_and_memory_from_what_spark_wrote",
    ),
    Mutant(
        "connections-to-all-whatever-is-set",
        "pipeline.kafka",
        {
            '"enable.sparse.connections": settings.transaction.connections == "needed",': (
                '"enable.sparse.connections": False,'
            )
        },
        "tests/unit/test_kafka.py::test_a_producer_connects_to_all_brokers_or_to_those_it_needs",
    ),
    Mutant(
        "lost-lanes-begin-anew",
        "pipeline.flow.preflight",
        {"until_given_up(partial(_begun, settings, source, lane))": "pass"},
        "tests/integration/test_job.py::"
        "test_a_lane_topic_that_was_made_anew_with_too_few_partitions_is_not_taken_for_a_source_that_grew",
    ),
)
