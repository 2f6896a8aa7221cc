"""Where Spark's checkpoint is put: on any file system of Hadoop's, by URI; a plain path is the driver's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.flow.checkpoint import BESIDE, location, noted_by
from pipeline.settings import Settings, build


def settings(checkpoint: str) -> Settings:
    """Return settings with this checkpoint."""
    return build(
        {
            "app": {"id": "app"},
            "source": {"bootstrap": "localhost:1", "topic": "source"},
            "output": {"topics": ("out",), "dead_letter_topic": "dead"},
            "spark": {"checkpoint": checkpoint},
        }
    )


@pytest.mark.parametrize(
    "given", ["hdfs://name:8020/a/b", "s3a://bucket/a", "file:/a/b", "file:///a/b c", "abfss://x@y/z"]
)
def test_a_uri_is_taken_as_it_is(given: str) -> None:
    assert location(settings(given), "/scratch") == given


@pytest.mark.parametrize("given", ["/a/b c", "/a/b:c"])
def test_a_plain_path_is_the_drivers_own_wherever_the_cluster_keeps_its_files(given: str) -> None:
    assert location(settings(given), "/scratch") == f"file://{given}"
    assert location(settings("a/b"), "/scratch") == f"file://{Path.cwd()}/a/b"


def test_without_a_setting_it_is_a_temporary_folder_of_the_driver() -> None:
    assert location(settings(""), "/scratch") == "file:///scratch/checkpoint"


@pytest.mark.parametrize(("checkpoint", "until_caught_up"), [("/kept", False), ("/kept", True), ("", True)])
def test_notes_from_which_another_run_goes_on_have_no_gaps(checkpoint: str, *, until_caught_up: bool) -> None:
    assert noted_by(settings(checkpoint), until_caught_up=until_caught_up) == {}


def test_of_a_temporary_folder_notes_are_made_beside_the_batches() -> None:
    assert noted_by(settings(""), until_caught_up=False) == BESIDE
