"""The mutants: what each one breaks, where, and the test that must then fail.

Those of the lanes stand here, all others in files of their own. Nothing under `src/` knows of them.
"""

from __future__ import annotations

from tests.mutants.choice import CHOICE
from tests.mutants.cluster import CLUSTER
from tests.mutants.locks import LOCK_MUTANTS
from tests.mutants.measured import MEASURED
from tests.mutants.mutant import Mutant
from tests.mutants.shuffled import SHUFFLED
from tests.mutants.values import VALUES
from tests.mutants.verdicts import VERDICTS
from tests.mutants.windows import WINDOWS

VARIABLE = "PIPELINE_MUTANT"

TRANSACTION = "pipeline.lanes.transaction"
WRITER = "pipeline.lanes.writer"
RECALL = "pipeline.lanes.recall"


def find(name: str) -> Mutant:
    """Return the mutant of that name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


MUTANTS = (
    Mutant(
        "producer-reused",
        TRANSACTION,
        {
            "class Transaction:": "KEPT: dict[str, Any] = {}\n\n\nclass Transaction:",
            "self._producer = fenced(self._make)": """\
if self._id not in KEPT:
    KEPT[self._id] = fenced(self._make)
self._producer = KEPT[self._id]""",
            # A producer that failed is dropped, as any product would do.
            "if not self._abortable:": "KEPT.pop(self._id, None)\nif not self._abortable:",
        },
        "tests/integration/test_transaction.py::test_a_late_end_of_an_earlier_transaction_cannot_end_a_later_one",
    ),
    Mutant(
        "fence-left-to-the-client",
        "pipeline.lanes.fence",
        {"producer.init_transactions(min(patience, left))": "producer.init_transactions(left)"},
        "tests/integration/test_fence.py::test_a_fence_that_is_told_not_yet_asks_again_before_the_client_would",
    ),
    Mutant(
        "fence-given-up-for-another",
        "pipeline.lanes.fence",
        {
            "take_id(producer, FENCE_SECONDS)": """\
for seconds in (0.1, 1.0, FENCE_SECONDS):
    try:
        take_id(producer, seconds)
        break
    except Exception:
        producer = make()"""
        },
        "tests/integration/test_fence.py::test_a_fence_whose_answer_is_late_asks_no_second_time",
    ),
    Mutant(
        "no-compare-and-set",
        TRANSACTION,
        {'if landed > end or (landed == end - 1 and before not in {"", self._id}):': "if False:"},
        "tests/integration/test_writer.py::test_an_out_of_date_hand_over_is_noticed_and_settled_by_reading",
    ),
    Mutant(
        "no-compare-and-set-on-three-brokers",
        TRANSACTION,
        {'if landed > end or (landed == end - 1 and before not in {"", self._id}):': "if False:"},
        "tests/integration/test_cluster.py::test_what_a_deposed_leader_serves_is_noticed_by_compare_and_set",
    ),
    Mutant(
        "recall-of-the-last-two-offsets",
        RECALL,
        {"if value is not None or start == low:": "if True:"},
        "tests/integration/test_recall.py::test_the_last_committed_record_is_found_behind_what_kills_left",
    ),
    Mutant(
        "source-read-uncommitted",
        "pipeline.flow.source",
        {'"kafka.isolation.level": "read_committed",': '"kafka.isolation.level": "read_uncommitted",'},
        "tests/integration/test_job.py::test_rows_of_aborted_upstream_transactions_never_appear",
    ),
    Mutant(
        "lane-record-outside-the-transaction",
        TRANSACTION,
        {
            'self._id = config["transactional.id"]': """\
self._id = config["transactional.id"]
self._apart = Producer({"bootstrap.servers": config["bootstrap.servers"]})""",
            "self._with_room(topic, value, key, partition, on_delivery=self._note_lane_record)": """\
self._apart.produce(topic, value, key, partition, on_delivery=self._note_lane_record)
self._apart.flush()""",
        },
        "tests/integration/test_transaction.py::test_one_refused_record_fails_the_whole_transaction",
    ),
    Mutant(
        "next-offset-may-fall",
        WRITER,
        {
            "if chunk.until <= lane.next_offset:": "if False:",
            "next_offset=max(lane.next_offset, until),": "next_offset=until,",
        },
        "tests/integration/test_writer.py::test_a_range_wholly_below_the_next_offset_writes_nothing",
    ),
    Mutant(
        "counters-on-attempts",
        WRITER,
        {
            "value = self._encoded(advance(lane, chunk.until, ledger, judged))": """\
self._attempted = getattr(self, "_attempted", 0) + judged.read
judged.read = self._attempted
value = self._encoded(advance(lane, chunk.until, ledger, judged))""",
            "self._recalled = recalled": "self._recalled = recalled\nself._attempted = 0",
        },
        "tests/integration/test_writer.py::test_attempts_that_did_not_commit_are_counted_nowhere",
    ),
    Mutant(
        "abort-after-an-uncertain-commit",
        TRANSACTION,
        {
            'with mapped(f"commit {self._id}", self._needs):': """\
self._abortable = True
with mapped(f"commit {self._id}", self._needs):""",
        },
        "tests/integration/test_transaction.py::test_nothing_is_aborted_once_commit_was_called",
    ),
    Mutant(
        "no-skip",
        WRITER,
        {"parts = [part.since(lane.next_offset) for part in chunk.parts]  # 3": "parts = chunk.parts"},
        "tests/integration/test_writer.py::test_of_a_range_that_overlaps_only_the_tail_is_written",
    ),
    Mutant(
        "delivery-failures-swallowed",
        TRANSACTION,
        {
            "if self._failures or left:": "if self._failures or left:\n    return\nif False:",
            "until_deadline(self._producer.commit_transaction, self._seconds)": """\
try:
    until_deadline(self._producer.commit_transaction, self._seconds)
except KafkaException:
    return""",
        },
        "tests/integration/test_transaction.py::test_one_refused_record_fails_the_whole_transaction",
    ),
    Mutant(
        "recall-before-the-fence",
        WRITER,
        {"self._fresh.fence_ahead()": "self._recalled = self._recalled or self._read()\nself._fresh.fence_ahead()"},
        "tests/integration/test_writer.py::test_the_six_steps_come_in_their_order",
    ),
    Mutant(
        "hand-over-trusted-after-a-failure",
        WRITER,
        {"self._recalled = None  # whatever was believed of the lane is in doubt: read it": "pass"},
        "tests/integration/test_writer.py::test_an_out_of_date_hand_over_is_noticed_and_settled_by_reading",
    ),
    Mutant(
        "time-out-taken-for-the-end",
        RECALL,
        {"if message is None:": "if message is None:\n    return value, start.offset\nif message is None:"},
        "tests/integration/test_recall.py::test_a_broker_that_falls_silent_is_an_error_and_never_an_empty_lane",
    ),
    Mutant(
        "gap-passed-over",
        WRITER,
        {"if lane.next_offset < chunk.first:": "if False:"},
        "tests/integration/test_writer.py::test_a_range_that_begins_beyond_the_next_offset_stops_the_job",
    ),
    Mutant(
        "gap-believed-without-proof",
        WRITER,
        {"self._stop_at_gap(chunk, lane, recalled, transaction)": 'raise SafeStop("gap")'},
        "tests/integration/test_writer.py::test_an_old_record_that_looks_like_a_gap_does_not_stop_the_job",
    ),
    Mutant(
        "newer-run-ignored",
        "pipeline.lanes.task",
        {"if lane.run > self.run:": "if False:"},
        "tests/integration/test_takeover.py::test_a_task_of_an_earlier_run_ends_its_job",
    ),
    Mutant(
        "attempt-in-the-transactional-id",
        "pipeline.settings",
        {
            'return f"{self.transactional_ids}{partition}"': """\
import time
return f"{self.transactional_ids}{partition}.{time.time_ns()}\"""",
        },
        "tests/integration/test_transaction.py::test_a_fence_aborts_what_an_earlier_writer_left_open_and_shuts_it_out",
    ),
    Mutant(
        "data-loss-ignored",
        "pipeline.flow.source",
        {'"failOnDataLoss": "true",': '"failOnDataLoss": "false",'},
        "tests/integration/test_job.py::test_records_that_retention_takes_while_it_runs_stop_it_with_their_offsets",
    ),
    Mutant(
        "hanging-lane-not-noticed",
        RECALL,
        {"while hanging_after is not None and found.end < found.high:": "while False:"},
        "tests/integration/test_hanging.py::test_a_job_does_not_take_over_a_lane_that_hangs",
    ),
    Mutant(
        "confirmed-transaction-aborted-for-its-owed-marker",
        TRANSACTION,
        {"if landed < end - (before == self._id):": 'if landed < end:\n    raise Moved("one lower")\nif False:'},
        "tests/integration/test_hanging.py::test_a_lane_known_to_be_committed_is_settled_by_the_next_commit",
    ),
    Mutant(
        "owed-marker-of-another-id-taken-for-its-own",
        TRANSACTION,
        {
            'if landed > end or (landed == end - 1 and before not in {"", self._id}):': "if landed > end:",
            "if landed < end - (before == self._id):": "if landed < end - bool(before):",
        },
        "tests/integration/test_together.py::test_the_owed_marker_of_another_id_is_waited_for_and_nothing_is_decided_in_its_place",
    ),
    Mutant(
        "lane-given-to-another-id-without-its-marker",
        "pipeline.lanes.handover",
        {"moving = {lane: recalled[lane] for lane, name in ids.items() if by[lane] != name}": "moving = {}"},
        "tests/integration/test_together.py::test_what_is_owed_under_one_id_is_completed_before_the_lane_goes_to_another",
    ),
    Mutant(
        "lanes-compared-with-the-end-of-another",
        "pipeline.lanes.together",
        {
            'found[lane] = self.compare(self._landed.get(lane), end, before.get(lane, ""))': """\
found[lane] = self.compare(self._lane_offset, end, before.get(lane, ""))""",
        },
        "tests/integration/test_together.py::test_each_lane_is_compared_with_its_own_end",
    ),
    Mutant(
        "rows-of-a-lane-that-is-over-taken",
        "pipeline.flow.together",
        {"if place < now:": "if False:"},
        "tests/unit/test_together.py::test_rows_of_a_lane_that_is_not_here_or_is_over_stop_the_task_before_other_lanes_are_moved",
    ),
    Mutant(
        "tasks-under-one-id",
        "pipeline.flow.together",
        {
            "return {lane: own(min(share)) for share in map(list, shares) for lane in share}": """\
return {lane: own(0) for share in map(list, shares) for lane in share}""",
        },
        "tests/unit/test_together.py::test_a_small_share_is_one_transaction_under_the_id_of_its_lowest_lane",
    ),
    Mutant(
        "judged-ahead-by-a-record-that-is-not-the-lanes",
        "pipeline.lanes.together",
        {
            "if ahead is not None and ahead.recalled is part.recalled and ahead.chunk is part.chunk:": """\
if ahead is not None:""",
            "self._recalled = self._judged_ahead = None": "self._recalled = None",
        },
        "tests/integration/test_together.py::test_a_lane_moved_by_another_writer_is_noticed_and_nothing_is_written_twice",
    ),
    Mutant(
        "broken-input-taken-for-the-end",
        "pipeline.lanes.side_by_side",
        {"feed.fail(error)": "feed.close()"},
        "tests/unit/test_side_by_side.py::test_an_input_that_breaks_off_is_never_taken_for_the_end_of_a_lane",
    ),
    Mutant(
        "rows-that-break-off-taken-for-all",
        "pipeline.flow.whole",
        {"if not stream.peek(1):": "if False:"},
        "tests/unit/test_whole.py::test_an_input_that_breaks_off_behind_a_whole_batch_is_an_error",
    ),
    Mutant(
        "lanes-of-a-task-guessed",
        "pipeline.flow.shares",
        {
            "places = asked(context, made, TO_PLACES).of(made)": """\
places = [list(range(len(places)))[task::tasks] for task in range(tasks)]""",
        },
        "tests/spark/test_shares.py::test_each_task_has_the_ranges_that_it_is_told_and_each_of_them_whole_and_in_order",
    ),
    *CHOICE,
    *VALUES,
    *VERDICTS,
    *MEASURED,
    *LOCK_MUTANTS,
    *CLUSTER,
    *SHUFFLED,
    *WINDOWS,
)
