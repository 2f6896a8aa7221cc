"""The mutants of what may be chosen: delivery, atomicity, reference data."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WEAKER = "pipeline.lanes.weaker"
TOGETHER = "pipeline.lanes.together"
BETWEEN = "tests/integration/test_delivery.py::test_a_kill_between_output_and_progress_costs_what_the_delivery_allows"

CHOICE = (
    Mutant(
        "delivery-quietly-weaker",
        WEAKER,
        {
            'kinds = {"exactly-once": LaneWriter, "at-least-once": AtLeastOnce, "at-most-once": AtMostOnce}': """\
kinds = {"exactly-once": AtLeastOnce, "at-least-once": AtLeastOnce, "at-most-once": AtMostOnce}""",
        },
        BETWEEN,
    ),
    Mutant(
        "at-most-once-sends-first",
        WEAKER,
        {
            "landed = super()._transact(transaction, Judged(), record, commit, describe)": """\
self._output(judged)
judged = Judged()
landed = super()._transact(transaction, judged, record, commit, describe)""",
        },
        BETWEEN,
    ),
    Mutant(
        "denials-of-a-weaker-delivery-tried-again",
        WEAKER,
        {"raise self._denied": "pass"},
        "tests/unit/test_choice.py::test_what_a_cluster_denies_a_weaker_delivery_is_not_tried_again",
    ),
    Mutant(
        "batch-in-several-transactions",
        "pipeline.lanes.share",
        {
            "until_given_up(lambda attempt: self._write(chunks, attempt), note)": """\
for lane in chunks:
    until_given_up(lambda attempt: self._write({lane: chunks[lane]}, attempt), note)""",
        },
        "tests/integration/test_atomicity.py::test_a_batch_whose_writer_is_killed_after_its_commit_is_there_as_a_whole",
    ),
    Mutant(
        "batch-compares-one-lane",
        TOGETHER,
        {
            'found[lane] = self.compare(self._landed.get(lane), end, before.get(lane, ""))': """\
found[lane] = self._landed[lane] if found else self.compare(self._landed[lane], end, before.get(lane, ""))""",
        },
        "tests/integration/test_atomicity.py::test_the_record_of_every_lane_must_land_where_its_recall_saw_the_end",
    ),
    Mutant(
        "cut-off-batch-with-the-table-of-now",
        "pipeline.flow.reference",
        {"if not left or not seen:": "if True:"},
        "tests/integration/test_reference.py::test_the_rest_of_a_batch_that_a_crash_cut_off_is_enriched_as_its_first_part",
    ),
)
