"""The mutants of the codec's guards and of the replay of dead letters."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SCAN = "pipeline.avro.scan"
BOUND = "keep = self._keep(rows, self._items[rows] > self._limits.items, too_many(self._limits))"
AMONG_MANY = "tests/unit/test_hostile.py::test_a_hostile_value_gets_the_same_reason_among_many"
UNSOUND = "tests/spark/test_codec.py::test_an_unsound_value_keeps_its_row_and_says_why"

VALUES = (
    Mutant(
        "items-not-bounded",
        SCAN,
        {BOUND: "keep = counts >= 0"},
        AMONG_MANY,
    ),
    Mutant(
        "trailing-bytes-accepted",
        SCAN,
        {'self._errors[row] = told(TRAILING, f"{left} bytes behind the value")': "pass"},
        "tests/unit/test_hostile.py::test_a_hostile_value_gets_a_reason_in_bounded_time_and_memory",
    ),
    Mutant(
        "duplicate-keys-accepted",
        "pipeline.flow.json_values",
        {'when(try_parse_json(text).isNull(), lit("duplicate keys, or not strict JSON")),': ""},
        UNSOUND,
    ),
    Mutant(
        "lists-and-maps-not-judged",
        "pipeline.flow.json_flaws",
        {'if node.kind in {"array", "map"}:': 'if node.kind in {"array", "map"}:\n    return []\nif False:'},
        UNSOUND,
    ),
    Mutant(
        "replay-without-a-look",
        "pipeline.lanes.replay",
        {"there = sent_back.look(identity(settings, one) for one in letters)": "there: set[Identity] = set()"},
        "tests/integration/test_replay.py::test_a_replay_that_is_killed_is_finished_by_the_next_and_sends_nothing_twice",
    ),
)
