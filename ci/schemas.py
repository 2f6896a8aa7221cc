"""Cut the schemas by which the Kubernetes manifests are checked: `python ci/schemas.py <folder>`.

The folder holds what others publish, as it is: `sparkapplications.yaml` (the Spark operator's CRD), `podmonitors.yaml`
(the Prometheus operator's), and `kubernetes/` (the schemas `*-local-strict` of the package kubernetes-validate).
Limits: a cut schema knows the fields that the manifests use, with their types and rules; any other is refused. So a
field that is new in a manifest is refused until the schemas are cut again; only one that its publisher knows gets in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
[PROJECT] = [path for path in ROOT.iterdir() if path.name.startswith("{{cookiecutter")]
SCHEMAS = PROJECT / "tests/support/kubernetes"
FROM = {
    "SparkApplication": "the custom resource definition of Spark operator 2.5.2",
    "PodMonitor": "the custom resource definition of Prometheus operator 0.85.0",
    "": "the schemas of Kubernetes 1.31",
}
# Fields that hold a whole pod, which the custom resource definition does not describe.
POD_TEMPLATES = {("driver", "template"), ("executor", "template")}

Schema = dict[str, Any]


class Publisher:
    """All that was published, as it is."""

    def __init__(self, folder: Path) -> None:
        """Nothing is read yet."""
        self._folder = folder

    def kind(self, document: Schema) -> Schema:
        """Give the whole schema of a manifest's kind."""
        file = self._folder / f"{document['kind'].lower()}s.yaml"
        if file.exists():
            [version] = [
                version
                for version in yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
                if version["name"] == document["apiVersion"].rpartition("/")[2]
            ]
            found: Schema = version["schema"]["openAPIV3Schema"]
            found["properties"]["metadata"] = self.core("objectmeta-meta-v1.json")
            return found
        group, _, version = document["apiVersion"].rpartition("/")
        name = "-".join(filter(None, [document["kind"].lower(), group.partition(".")[0], version]))
        return self.core(f"{name}.json")

    def core(self, name: str) -> Schema:
        """Read one of Kubernetes' own."""
        found: Schema = json.loads((self._folder / "kubernetes" / name).read_text(encoding="utf-8"))
        return found

    def cut(self, schema: Schema, used: object, path: tuple[str, ...] = ()) -> Schema:
        """Keep of a schema what a value uses; texts are left out."""
        if "$ref" in schema:
            schema = self._referred(schema["$ref"])
        if path[-2:] in POD_TEMPLATES:
            schema = self.core("podtemplatespec-v1.json")
        rules = {"type", "enum", "format", "minimum", "maximum", "pattern", "required", "oneOf", "anyOf",
                 "x-kubernetes-int-or-string"}  # fmt: skip
        kept = {name: rule for name, rule in schema.items() if name in rules}
        if isinstance(used, dict) and "properties" in schema:
            kept["additionalProperties"] = False
            kept["properties"] = {
                name: self.cut(part, used[name], (*path, name))
                for name, part in sorted(schema["properties"].items())
                if name in used
            }
        elif isinstance(used, dict):
            kept["additionalProperties"] = self.cut(schema.get("additionalProperties") or {}, None)
        elif isinstance(used, list):
            merged: object = {}
            for item in used:
                merged = merge(merged, item)
            kept["items"] = self.cut(schema["items"], merged, path)
        return kept

    def _referred(self, reference: str) -> Schema:
        file, _, place = reference.partition("#")
        found = self.core(file.rpartition("/")[2] or "_definitions.json")
        for name in filter(None, place.split("/")):
            found = found[name]
        return found


def merge(left: object, right: object) -> object:
    """Lay two values over each other: every field that either has."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {name: merge(left.get(name), right.get(name)) for name in {*left, *right}}
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    return right if left is None or left == {} else left


def manifests() -> list[Schema]:
    """Read all manifests and patches of the project; kustomize's own files are not for the cluster."""
    found = [
        document
        for path in sorted((PROJECT / "ops/kubernetes").rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    return [document for document in found if document.get("kind") not in {None, "Kustomization"}]


def main(folder: Path) -> None:
    """Write a schema for each kind, from all manifests of that kind."""
    publisher = Publisher(folder)
    kinds: dict[str, Schema] = {"ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {}}}
    for document in manifests():
        kinds[document["kind"]] = dict(merge(kinds.get(document["kind"], {}), document))  # type: ignore[call-overload]
    for kind, used in kinds.items():
        used["metadata"] = {"name": "", "namespace": "", "labels": {}}
        for subject in used.get("subjects", []):
            subject["namespace"] = ""  # kustomize adds it
        schema = publisher.cut(publisher.kind(used), used)
        text = f"Fields of {kind} that the manifests use, cut from {FROM.get(kind, FROM[''])}"
        (SCHEMAS / f"{kind.lower()}.json").write_text(
            json.dumps({"description": text, **schema}, indent=1) + "\n", encoding="utf-8"
        )
        sys.stdout.write(f"{kind}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
