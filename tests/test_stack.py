"""Compose files and workflows are valid by their own schemas, and keep the rules of the house."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from conftest import PROJECT, ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE = [PROJECT / "compose.yaml", PROJECT / "ops/compose.yaml"]
SCHEMAS = {
    ROOT / ".github/workflows/ci.yml": "vendor.github-workflows",
    PROJECT / ".github/workflows/ci.yml": "vendor.github-workflows",
    PROJECT / ".github/actions/setup/action.yml": "vendor.github-actions",
    PROJECT / ".gitlab-ci.yml": "vendor.gitlab-ci",
    **dict.fromkeys(COMPOSE, "vendor.compose-spec"),
}


def services() -> dict[str, dict[str, Any]]:
    """Return all services of the local stack, with defaults in the place of variables."""
    found: dict[str, dict[str, Any]] = {}
    for path in COMPOSE:
        text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text(encoding="utf-8"))
        found |= yaml.safe_load(text)["services"]
    return found


def check(path: Path, schema: str) -> subprocess.CompletedProcess[str]:
    """Hold a file against a schema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    if schema == "vendor.gitlab-ci":
        command += ["--data-transform", "gitlab-ci"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_for_others_is_valid_by_their_schema(path: Path, tmp_path: Path) -> None:
    """And would not be, with a wrong key in it."""
    done = check(path, SCHEMAS[path])
    assert done.returncode == 0, done.stdout

    wrong = tmp_path / path.name
    wrong.write_text(path.read_text(encoding="utf-8").replace("image:", "imagge:").replace("uses:", "usess:"))
    assert check(wrong, SCHEMAS[path]).returncode != 0


def test_every_image_of_the_stack_is_pinned() -> None:
    """To a version, of its own repository or of this project."""
    for name, service in services().items():
        repository, _, tag = service["image"].partition(":")
        assert repository, name
        assert re.fullmatch(r"v?\d+\.\d+\.\d+|local", tag), f"{name}: {service['image']}"


def test_kafka_has_one_version_everywhere() -> None:
    """The embedded broker's, the container's of the tests, the stack's, and GitLab's."""
    pins = tomllib.loads((PROJECT / "src/pipeline/local/jars.toml").read_text(encoding="utf-8"))
    image = f"apache/kafka:{pins['broker']['roots'][0].rpartition(':')[2]}"

    assert services()["kafka"]["image"] == image
    assert f'"{image}"' in (PROJECT / "tests/support/container.py").read_text(encoding="utf-8")
    assert f"name: {image}\n" in (PROJECT / ".gitlab-ci.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("found", "folder"),
    [("kafka-broker-api-versions", "."), ("kafka-broker-api-versions.sh", "opt")],
    ids=["Confluent's image", "Apache's image"],
)
def test_the_health_check_of_kafka_finds_the_program_of_both_images(found: str, folder: str, tmp_path: Path) -> None:
    """One has it on the path, the other in /opt/kafka."""
    [kind, line] = services()["kafka"]["healthcheck"]["test"]
    (tmp_path / "opt").mkdir()
    program = tmp_path / folder / found
    program.write_text('#!/bin/sh\necho "$0 $*"\n', encoding="utf-8")
    program.chmod(0o755)

    script = line.replace("$$", "$").replace("/opt/kafka/bin", str(tmp_path / "opt"))
    done = subprocess.run(
        ["/bin/sh", "-c", script], check=False, capture_output=True, text=True, env={"PATH": str(tmp_path)}
    )

    assert kind == "CMD-SHELL"
    assert done.stdout == f"{program} --bootstrap-server localhost:19092\n", done.stderr


@pytest.mark.parametrize(
    ("source", "variables", "made"),
    [
        ("push", {"CI_COMMIT_BRANCH": "mine"}, 1),
        ("push", {"CI_COMMIT_BRANCH": "mine", "CI_OPEN_MERGE_REQUESTS": "group/project!1"}, 0),
        ("merge_request_event", {"CI_OPEN_MERGE_REQUESTS": "group/project!1"}, 1),
        ("push", {"CI_COMMIT_TAG": "v1"}, 1),
        ("schedule", {"CI_COMMIT_BRANCH": "main"}, 1),
    ],
    ids=["branch", "branch with a merge request", "merge request", "tag", "schedule"],
)
def test_gitlab_makes_one_pipeline_for_a_push(source: str, variables: dict[str, str], made: int) -> None:
    """The first rule that holds decides, as GitLab's manual says."""
    rules = yaml.safe_load((PROJECT / ".gitlab-ci.yml").read_text(encoding="utf-8"))["workflow"]["rules"]
    given = {"CI_PIPELINE_SOURCE": source, **variables}

    def holds(condition: str) -> bool:
        terms = [re.fullmatch(r'\$(\w+)(?: == "(\w+)")?', term) for term in condition.split(" && ")]
        assert all(terms), condition
        return all(given.get(term[1], "") == term[2] if term[2] else term[1] in given for term in terms if term)

    first = next((rule for rule in rules if holds(rule["if"])), {"when": "never"})
    assert (first.get("when") != "never") == made


def test_every_service_has_a_health_check_or_does_without_on_purpose() -> None:
    """That of the pipeline is in its image."""
    without = {name for name, service in services().items() if "healthcheck" not in service}

    assert without == {"pipeline"}
    assert "\nHEALTHCHECK " in (PROJECT / "Dockerfile").read_text(encoding="utf-8")


def test_no_service_may_do_more_than_it_must() -> None:
    """No privileges, no capabilities, no ports for other machines."""
    for name, service in services().items():
        assert "privileged" not in service, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_data_is_kept_in_named_volumes_and_all_else_is_mounted_read_only() -> None:
    """So `down` keeps it, and no container can change the project."""
    named = {name for path in COMPOSE for name in yaml.safe_load(path.read_text(encoding="utf-8"))["volumes"]}
    for service in services().values():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            assert source in named or (rest.endswith(":ro") and (PROJECT / source).exists()), volume


def test_secrets_come_from_the_environment() -> None:
    """None has a default; the file that holds them is git's to ignore."""
    text = "".join(path.read_text(encoding="utf-8") for path in COMPOSE)
    secrets = re.findall(r"^\s+(\w*(?:PASSWORD|USER_INFO|TOKEN|SECRET)\w*): (.*)$", text, re.MULTILINE)

    assert {name for name, _ in secrets} == {"GF_SECURITY_ADMIN_PASSWORD", "SCHEMA_REGISTRY_USER_INFO"}
    assert [value for _, value in secrets if not re.fullmatch(r"\$\{\w+:(-|\?[^}]*)\}", value)] == []
    assert "\n.env\n" in (PROJECT / ".gitignore").read_text(encoding="utf-8")


def test_prometheus_of_the_stack_differs_in_its_target_alone() -> None:
    """The same rules, at the same pace."""
    folder = PROJECT / "ops/prometheus"
    own, stack = (
        yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in ("prometheus.yml", "compose.yml")
    )
    own["scrape_configs"][0]["static_configs"][0]["targets"] = ["pipeline:9108"]

    assert stack == own
