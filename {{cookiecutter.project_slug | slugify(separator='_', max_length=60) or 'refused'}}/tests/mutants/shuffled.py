"""The mutants of the shuffled path: the token rule, the lane of a key, late events, and the time of dedup."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RULE = "pipeline.lanes.token"
WRITER_TESTS = "tests/integration/test_shuffled_writer.py"
RUN_AGAIN = f"{WRITER_TESTS}::test_a_batch_that_is_run_again_writes_nothing_in_a_lane_that_has_it"
DIVERGES = f"{WRITER_TESTS}::test_a_replay_that_diverges_stops_the_job_and_nothing_is_written"

SHUFFLED = (
    Mutant(
        "token-not-looked-at",
        RULE,
        {
            "fault = _fault(found, planned, start, lane)": 'fault = ""',
            "return found is not None and found.batch_id == planned.batch_id": "return False",
        },
        RUN_AGAIN,
    ),
    Mutant("digest-ignored", RULE, {"if found.digest == planned.digest:": "if True:"}, DIVERGES),
    Mutant("query-id-ignored", RULE, {"if found.query_id != planned.query_id:": "if False:"}, DIVERGES),
    Mutant(
        "batch-left-out",
        RULE,
        {"if found.batch_id == planned.batch_id - 1 and found.offsets == planned.firsts:": "if True:"},
        DIVERGES,
    ),
    Mutant(
        "stop-of-a-token-without-proof",
        "pipeline.lanes.shuffled",
        {"self._prove(recalled, transaction)": "pass"},
        f"{WRITER_TESTS}::test_an_old_record_that_looks_like_a_gap_does_not_stop_the_job",
    ),
    Mutant(
        "reason-of-a-task-not-told",
        "pipeline.flow.shuffled",
        {"report.raise_stop()": "pass"},
        "tests/unit/test_part.py::test_a_task_that_cannot_gather_its_part_says_why",
    ),
    Mutant(
        "weaker-delivery-on-the-shuffled-path",
        "pipeline.consistency",
        {'if delivery.semantics != "exactly-once":': "if False:"},
        "tests/unit/test_settings.py::test_settings_that_contradict_each_other_are_refused",
    ),
    Mutant(
        "state-on-each-machine-s-own-disk",
        "pipeline.consistency",
        {'if settings.shuffled and not URI.match(place) and not master.startswith("local"):': "if False:"},
        "tests/unit/test_settings.py::test_settings_that_contradict_each_other_are_refused",
    ),
    Mutant(
        "state-to-be-deleted",
        "pipeline.flow.checkpoint",
        {'to_do = f"the state is in this folder alone; restore it from a copy, {RESET}"': "pass"},
        "tests/unit/test_paths.py::test_nobody_is_told_to_delete_a_checkpoint_that_holds_state",
    ),
    Mutant(
        "one-lane-stops-while-another-writes",
        "pipeline.flow.planned",
        {"having = lanes_with(tokens, plan)": "having = []"},
        "tests/unit/test_planned.py::test_a_batch_begins_only_if_every_lane_can_skip_or_write_it",
    ),
    Mutant(
        "lanes-not-looked-at-before-tasks",
        "pipeline.flow.shuffled",
        {"check_all(plan, self.settings, self.folder, lanes.recalled)": "pass"},
        "tests/unit/test_planned.py::test_no_task_begins_if_one_lane_must_stop",
    ),
    Mutant(
        "half-a-batch-by-other-code",
        RULE,
        {"if token is not None and token.code != planned.code and len(having) < len(found):": "if False:"},
        "tests/unit/test_token.py::test_a_batch_that_some_lanes_have_is_finished_by_what_began_it",
    ),
    Mutant(
        "half-a-batch-by-other-settings",
        RULE,
        {"if token is not None and token.settings != planned.settings:": "if False:"},
        "tests/unit/test_token.py::test_a_batch_that_some_lanes_have_is_finished_by_what_began_it",
    ),
    Mutant(
        "any-copy-of-an-id",
        "pipeline.flow.window_dedup",
        {
            'copies = Window.partitionBy(dedup.id_column, apart).orderBy(f"{SOURCE}.partition", offset)': (
                'copies = Window.partitionBy(dedup.id_column, apart).orderBy(f"{SOURCE}.digest")'
            )
        },
        "tests/spark/test_shuffled.py"
        "::test_the_first_copy_of_an_id_by_its_place_is_kept_however_spark_spreads_the_rows",
    ),
    Mutant(
        "originals-read-within-the-transaction",
        "pipeline.lanes.shuffled",
        {
            "self._aside = self._aside or list(self._originals())": "pass",
            "return self._aside": "return self._originals()",
        },
        f"{WRITER_TESTS}::test_late_and_unsound_records_are_set_aside_byte_for_byte",
    ),
    Mutant(
        "lane-by-partition-id",
        "pipeline.flow.spread",
        {
            'return f.pmod(f.xxhash64(key), f.lit(len(plan.offsets))).cast("int")': (
                'return f.pmod(f.spark_partition_id(), f.lit(len(plan.offsets))).cast("int")'
            )
        },
        "tests/spark/test_shuffled.py::test_a_key_has_the_same_lane_however_spark_spreads_the_rows",
    ),
    Mutant(
        "late-left-to-spark",
        "pipeline.flow.lateness",
        {
            "return sound(events, windows).withColumn(LATE, col(ERROR).isNull() & late)": (
                "return sound(events, windows).withColumn(LATE, late & lit(False))"
            )
        },
        "tests/integration/test_shuffled.py::test_late_events_are_never_dropped_in_silence",
    ),
    Mutant(
        "dedup-by-the-time-of-records",
        "pipeline.flow.window_dedup",
        {
            "return current_timestamp()": 'return col("_source.timestamp")  # of the record, not of its batch',
        },
        "tests/integration/test_window_dedup.py"
        "::test_an_id_is_written_once_over_restarts_and_partitions_however_far_one_is_behind",
    ),
    Mutant(
        "dropped-taken-for-hits",
        "pipeline.flow.part",
        {"part.kept += 1": "part.kept += bool(outputs)"},
        "tests/unit/test_part.py::test_each_row_counts_as_its_kind_says",
    ),
    Mutant(
        "half-a-record-behind-dedup",
        "pipeline.flow.part",
        {"part.dead.append((*place, error))": "part.outputs += outputs"},
        "tests/unit/test_part.py"
        "::test_an_output_that_its_topic_does_not_take_makes_a_dead_letter_of_its_whole_record_behind_dedup",
    ),
    Mutant(
        "stop-not-passed-on",
        "pipeline.flow.shutdown",
        {"stop_file.touch()": "pass"},
        "tests/unit/test_paths.py::test_a_stop_is_passed_on_to_tasks_while_the_driver_waits_for_them",
    ),
)
