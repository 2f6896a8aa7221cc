"""The Kubernetes manifests: valid by the schemas of their kinds, whole, and true to image, settings and endpoint."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.certificates import Authority
from tests.support.manifests import KUBERNETES, OVERLAYS, ROOT, Document, built, documents, flaws, identity

from pipeline.settings import KEYS, load

SECRETS = "/etc/pipeline/secrets"
JOBS = [path for path in OVERLAYS if path.parent.name == "overlays"]


def program(name: str) -> str:
    """Find a program of `make manifests`, or skip."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here; `make manifests` fetches it")
    return found


def job(folder: Path) -> Document:
    """Return the SparkApplication of an overlay."""
    [found] = [document for document in built(folder) if document["kind"] == "SparkApplication"]
    return found


def container(document: Document, role: str) -> dict[str, Any]:
    """Return the one container of the driver's or an executor's pod."""
    [found] = document["spec"][role]["template"]["spec"]["containers"]
    return dict(found)


def settings_of(folder: Path) -> dict[str, str]:
    """Return what the ConfigMap of an overlay sets."""
    [found] = [document["data"] for document in built(folder) if document["kind"] == "ConfigMap"]
    return dict(found)


def by_kustomize(folder: Path) -> list[Document]:
    """Return what kustomize itself makes of an overlay."""
    done = subprocess.run([program("kustomize"), "build", str(folder)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def without_digest(document: Document) -> Document:
    """Leave out of all names what kustomize adds to that of a generated ConfigMap; and the labels that it adds."""
    text = re.sub(r"pipeline-settings-[a-z0-9]{10}\b", "pipeline-settings", yaml.safe_dump(document))
    plain: Document = yaml.safe_load(text)
    plain["metadata"].pop("labels", None)
    for subject in plain.get("subjects", []):
        subject.pop("namespace", None)
    return plain


def test_there_is_an_overlay() -> None:
    assert JOBS, "without one, the tests below would look at nothing"


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda path: path.name)
def test_every_manifest_is_valid_by_the_schema_of_its_kind(folder: Path) -> None:
    assert {f"{document['kind']}: {flaw}" for document in built(folder) for flaw in flaws(document)} == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "driver", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "prot"), "metrics"),
        (("spec", "driver", "template", "spec", "containers", 0, "env", 0, "value"), 7),
        (("spec", "executor", "instances"), "two"),
        (("spec", "mode"), "clustered"),
        (("spec", "restartPolicy", "type"), "Sometimes"),
        (("metadata", "nmae"), "pipeline"),
        (("spec", "drivers"), {}),
    ],
    ids=lambda path: ".".join(map(str, path)) if isinstance(path, tuple) else "",
)
def test_a_wrong_manifest_is_refused(path: tuple[Any, ...], value: Any) -> None:
    document = copy.deepcopy(job(JOBS[0]))
    place: Any = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert flaws(document)


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda path: path.name)
def test_kustomize_itself_makes_the_same_of_an_overlay(folder: Path) -> None:
    made = {identity(document): document for document in map(without_digest, by_kustomize(folder))}
    assert made == {identity(document): document for document in map(without_digest, built(folder))}


@pytest.mark.parametrize("folder", JOBS, ids=lambda path: path.name)
def test_a_changed_setting_changes_the_name_that_the_job_refers_to(folder: Path) -> None:
    made = by_kustomize(folder)
    [settings] = [document["metadata"]["name"] for document in made if document["kind"] == "ConfigMap"]
    [application] = [document for document in made if document["kind"] == "SparkApplication"]
    assert settings != "pipeline-settings"
    for role in ("driver", "executor"):
        assert container(application, role)["envFrom"] == [{"configMapRef": {"name": settings}}]


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda path: path.name)
def test_kubeconform_accepts_what_kustomize_makes(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.yaml"
    made.write_text(yaml.safe_dump_all(by_kustomize(folder)), encoding="utf-8")
    # A copy: the name of the template's own folder would be taken for a part of the pattern.
    for path in (ROOT / "tests/support/kubernetes").glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    command = [program("kubeconform"), "-strict", "-schema-location", f"{tmp_path}/{{{{.ResourceKind}}}}.json"]
    done = subprocess.run([*command, str(made)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("folder", JOBS, ids=lambda path: path.name)
def test_the_settings_of_an_overlay_are_settings_and_allowed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the Secret holds, in a folder of this machine.
    (tmp_path / "KAFKA_PASSWORD").write_text("any", "ascii")
    Authority(tmp_path, "ca")
    settings = {name: value.replace(SECRETS, str(tmp_path)) for name, value in settings_of(folder).items()}
    monkeypatch.chdir(ROOT)
    given = settings | {
        entry["name"]: entry["value"] for entry in container(job(folder), "driver")["env"] if "value" in entry
    }
    # In place, before it is rendered, the file holds no valid name of an app.
    environ = given | {"PIPELINE_APP__ID": "app", "PIPELINE_SOURCE__TOPIC": "source"}
    environ |= {"PIPELINE_CODEC__INPUT": "avro", "PIPELINE_CODEC__OUTPUT": "avro"}
    environ |= {"PIPELINE_OUTPUT__DEAD_LETTER_TOPIC": "dead", "PIPELINE_WINDOWS__LATE_TOPIC": "late"}
    assert load(ROOT / "pipeline.toml", environ).metrics.address == "0.0.0.0"  # noqa: S104  the pod's own
    for name in given:
        section, key = name.removeprefix("PIPELINE_").lower().split("__")
        assert key in KEYS[section]


@pytest.mark.parametrize("folder", JOBS, ids=lambda path: path.name)
def test_the_probes_ask_the_endpoint_on_its_port(folder: Path) -> None:
    driver = container(job(folder), "driver")
    [port] = [port["containerPort"] for port in driver["ports"] if port["name"] == "metrics"]
    assert f"\nEXPOSE {port}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    told = {entry["name"]: entry.get("value") for entry in driver["env"]}
    assert told["PIPELINE_METRICS__PORT"] == str(port), "whatever pipeline.toml says"
    asked = {probe: driver[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe: http["path"] for probe, http in asked.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {http["port"] for http in asked.values()} == {"metrics"}


@pytest.mark.parametrize("folder", JOBS, ids=lambda path: path.name)
def test_a_pod_runs_as_the_user_of_the_image_and_may_do_no_more_than_it_must(folder: Path) -> None:
    for role in ("driver", "executor"):
        pod = job(folder)["spec"][role]["template"]["spec"]
        assert f"\nUSER {pod['securityContext']['runAsUser']}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
        assert pod["securityContext"]["runAsNonRoot"] is True
        asked = container(job(folder), role)["securityContext"]
        assert asked == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert {"cores", "memory", "memoryOverhead"} <= job(folder)["spec"][role].keys()


def test_secrets_are_named_never_written() -> None:
    found = [document for path in KUBERNETES.rglob("*.yaml") for document in documents(path)]
    assert "Secret" not in {document.get("kind") for document in found}
    for folder in JOBS:
        for role in ("driver", "executor"):
            pod, box = job(folder)["spec"][role]["template"]["spec"], container(job(folder), role)
            plain = [entry["name"] for entry in box["env"] if "value" in entry]
            assert not [name for name in plain if re.search("PASSWORD|SECRET|TOKEN|USER_INFO", name)]
            [volume] = pod["volumes"]
            assert volume["secret"]["secretName"] == "pipeline-secrets"
            assert [mount["readOnly"] for mount in box["volumeMounts"]] == [True]


def test_production_is_behind_locks_and_names_files_of_the_mounted_secret() -> None:
    settings = settings_of(KUBERNETES / "overlays/production")
    assert settings["PIPELINE_SECURITY__METHOD"] != "plaintext"
    assert ":9092" not in settings["PIPELINE_SOURCE__BOOTSTRAP"]
    for key in ("PIPELINE_SECURITY__PASSWORD_FILE", "PIPELINE_SECURITY__CA_FILE"):
        assert settings[key].startswith(f"{SECRETS}/")
    for role in ("driver", "executor"):
        mounts = container(job(KUBERNETES / "overlays/production"), role)["volumeMounts"]
        assert [mount["mountPath"] for mount in mounts] == [SECRETS]


def test_the_versions_are_those_of_the_image() -> None:
    pins = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for folder in JOBS:
        assert f'"pyspark=={job(folder)["spec"]["sparkVersion"]}"' in pins


def test_what_is_scraped_is_the_driver() -> None:
    folder = KUBERNETES / "monitoring"
    if not folder.exists():
        pytest.skip("this project was made without monitoring")
    [monitor] = built(folder)
    labels = job(JOBS[0])["spec"]["driver"]["template"]["metadata"]["labels"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted == {**labels, "spark-role": "driver"}  # the second is Spark's own
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
