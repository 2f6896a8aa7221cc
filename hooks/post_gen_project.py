"""Delete the files of answers that were not chosen, and print the next three commands. No more.

All optional files of the template stand in this one table.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWERS = r"""{{ cookiecutter | tojson }}"""

CLUSTER_FILES = (
    "kubernetes.mk",
    "ops/kubernetes",
    "tests/support/kubernetes",
    "tests/support/manifests.py",
    "tests/unit/test_manifests.py",
)

# option -> answer -> paths that this answer does without
UNCHOSEN: dict[str, dict[str, tuple[str, ...]]] = {
    "license": {
        "Apache-2.0": (),
        "MIT": (),
        "Proprietary": ("LICENSE",),
    },
    "value_format": {  # a setting of pipeline.toml; both need the same files
        "avro": (),
        "json": (),
    },
    "ci_provider": {
        "github": (".gitlab-ci.yml",),
        "gitlab": (".github",),
        "none": (".github", ".gitlab-ci.yml"),
    },
    "monitoring": {
        "prometheus-grafana": (),
        "none": (
            "docs/runbook.md",
            "ops/compose.yaml",
            "ops/grafana",
            "ops/kubernetes/monitoring",
            "ops/prometheus",
            "tests/integration/test_prometheus.py",
            "tests/ops",
            "tests/support/prometheus.py",
        ),
    },
    "containers": {
        "docker": CLUSTER_FILES,
        "kubernetes": (),
        "none": (
            *CLUSTER_FILES,
            ".dockerignore",
            "Dockerfile",
            "compose.yaml",
            "containers.mk",
            "ops/compose.yaml",
            "ops/prometheus/compose.yml",
            "tests/integration/test_image.py",
            "tests/integration/test_stack.py",
            "tests/support/stack.py",
        ),
    },
}


def main() -> None:
    """Run in the new project's folder."""
    answers = json.loads(ANSWERS)
    for path in unchosen(answers):
        remove(Path(path))
    sys.stdout.write(next_steps(answers["project_slug"]))


def unchosen(answers: Mapping[str, str]) -> list[str]:
    """List the paths that no chosen answer needs; a folder goes with all that is in it."""
    paths = {path: None for option, by_answer in UNCHOSEN.items() for path in by_answer[answers[option]]}
    return [path for path in paths if not any(path.startswith(f"{folder}/") for folder in paths)]


def remove(path: Path) -> None:
    """Delete a file or a folder, and the folder above it that is empty then; one that is missing is an error here."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if path.parent != Path() and not any(path.parent.iterdir()):
        remove(path.parent)


def next_steps(slug: str) -> str:
    """Say what to type now."""
    return f"\nMade {slug}. Next:\n\n    cd {slug}\n    make demo\n    make test\n\n"


if __name__ == "__main__":
    main()
